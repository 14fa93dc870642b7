// SPDX-License-Identifier: Apache-2.0
//
// What gives blocks their ids: namespaces, the layout of ranks, derivation from an engine's hashes,
// and chains over tokens. Ids come and go as bytes, 16 each.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>

#include "block_id/block_hasher.h"
#include "block_id/layout.h"
#include "block_id/namespace.h"
#include "python/arguments.h"
#include "python/errors.h"
#include "python/gil.h"
#include "python/register.h"

namespace ucmstore::python {

namespace py = pybind11;

namespace {

using Fields = std::map<std::string, std::string>;
using Bytes = std::optional<std::string>;
using Media = std::vector<std::tuple<std::string, std::uint64_t, std::uint64_t>>;

std::size_t CountIds(const py::object& ids) { return BlockIds(ids.ptr()).get().size(); }

py::bytes CopyIds(const py::object& ids) {
  const BlockIds blocks(ids.ptr());
  return {reinterpret_cast<const char*>(blocks.get().data()), blocks.get().size_bytes()};
}

// A bytes object with room for so many ids, and the room.
std::pair<py::bytes, std::span<BlockId>> NewIds(std::size_t count) {
  auto* object =
      PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(count * sizeof(BlockId)));
  if (object == nullptr) throw py::error_already_set();
  return {py::reinterpret_steal<py::bytes>(object),
          {reinterpret_cast<BlockId*>(PyBytes_AS_STRING(object)), count}};
}

py::bytes Fingerprint(const Namespace& name_space) {
  return {reinterpret_cast<const char*>(name_space.fingerprint().data()),
          name_space.fingerprint().size()};
}

py::bytes Derive(const Namespace& name_space, const py::object& hashes, std::uint32_t width,
                 std::uint32_t every, const std::string& tag) {
  const ReadableBytes bytes(hashes.ptr(), "hashes");
  if (width == 0) ThrowArgument("width 0: a hash has at least 1 byte");
  if (every == 0) ThrowArgument("every 0: take every 1st hash, or every n-th");
  auto [ids, room] = NewIds(bytes.octets().size() / width / every);
  Status status;
  {
    const GilRelease no_gil;
    status = name_space.Derive(bytes.octets(), width, every, tag, room);
  }
  ThrowIfFailed(status);
  return ids;
}

BlockHasher MakeHasher(const Namespace& name_space, std::uint32_t block_tokens, const Bytes& salt,
                       const Bytes& adapter) {
  RequestTraits traits;
  if (salt) traits.salt = *salt;
  if (adapter) traits.adapter = *adapter;
  return ValueOrThrow(BlockHasher::Make(name_space, block_tokens, traits));
}

// `tokens`: a contiguous buffer of signed 64-bit integers.
py::bytes Hash(const BlockHasher& hasher, const py::object& tokens, const Media& media,
               std::uint64_t blocks_before, const py::bytes& last) {
  const Column column(tokens.ptr(), "tokens");
  const std::string_view last_id = last;
  ChainEnd after;
  after.blocks = blocks_before;
  if (blocks_before > 0) {
    if (last_id.size() != sizeof(BlockId)) {
      ThrowArgument("the last id has " + std::to_string(last_id.size()) +
                    " bytes; a block id has 16");
    }
    last_id.copy(reinterpret_cast<char*>(after.last.bytes.data()), sizeof(BlockId));
  }
  std::vector<MediaItem> items;
  items.reserve(media.size());
  for (const auto& [hash, offset, length] : media) items.push_back({hash, offset, length});
  auto [ids, room] = NewIds(column.get().size() / hasher.block_tokens());
  Status status;
  {
    const GilRelease no_gil;
    const std::span<const std::int64_t> values{
        reinterpret_cast<const std::int64_t*>(column.get().data()), column.get().size()};
    status = hasher.Hash(values, items, after, room);
  }
  ThrowIfFailed(status);
  return ids;
}

Layout MakeLayout(std::uint32_t tp, std::uint32_t pp, std::uint32_t cp, bool replicated) {
  return ValueOrThrow(Layout::Make({tp, pp, cp}, replicated));
}

Fields LayoutFields(const Layout& layout, Fields fields) {
  ThrowIfFailed(layout.AddTo(fields));
  return fields;
}

std::string LayoutTag(const Layout& layout, std::uint32_t tp, std::uint32_t pp, std::uint32_t cp) {
  return ValueOrThrow(layout.Tag({tp, pp, cp}));
}

}  // namespace

void RegisterIdentity(py::module_& module) {
  module.def("count_ids", &CountIds, py::arg("ids"));
  module.def("copy_ids", &CopyIds, py::arg("ids"));
  py::class_<Namespace>(module, "Namespace")
      .def(py::init(
               [](const Fields& fields) { return ValueOrThrow(Namespace::FromFields(fields)); }),
           py::arg("fields"))
      .def_property_readonly("fields", &Namespace::fields)
      .def_property_readonly("text", &Namespace::text)
      .def_property_readonly("label", &Namespace::label)
      .def_property_readonly("fingerprint", &Fingerprint)
      .def("derive", &Derive, py::arg("hashes"), py::arg("width"), py::arg("every"),
           py::arg("tag"));
  py::class_<Layout>(module, "Layout")
      .def(py::init(&MakeLayout), py::arg("tp"), py::arg("pp"), py::arg("cp"),
           py::arg("tensor_replicated"))
      .def("add_to", &LayoutFields, py::arg("fields"))
      .def("tag", &LayoutTag, py::arg("tp"), py::arg("pp"), py::arg("cp"));
  py::class_<BlockHasher>(module, "BlockHasher")
      .def(py::init(&MakeHasher), py::arg("name_space"), py::arg("block_tokens"),
           py::arg("salt") = py::none(), py::arg("adapter") = py::none())
      .def_property_readonly("block_tokens", &BlockHasher::block_tokens)
      .def("hash", &Hash, py::arg("tokens"), py::arg("media"), py::arg("blocks_before"),
           py::arg("last"));
}

}  // namespace ucmstore::python
