// SPDX-License-Identifier: Apache-2.0
//
// The optional table "admin/1" of a stage: looking at, checking and clearing what lies at rest.
// Callbacks run with the GIL; an exception in one ends the walk and comes out of it.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/plugin_search.h"
#include "python/errors.h"
#include "python/gil.h"
#include "python/register.h"

namespace ucmstore::python {

namespace py = pybind11;

namespace {

const AdminTableV1& Find(const std::string& stage, const std::vector<std::string>& plugin_path,
                         PluginPtr& plugin) {
  plugin = ValueOrThrow(FindPlugin(stage, plugin_path), Origin::kOpen);
  const auto* table = plugin->Query<AdminTableV1>(nullptr, "admin/1");
  if (table == nullptr) {
    throw StatusError(
        Status::Error(Code::kUnsupported, "stage " + stage +
                                              " keeps nothing that could be looked at "
                                              "without opening a store"));
  }
  return *table;
}

py::str Text(const char* text) {
  auto* object = PyUnicode_DecodeFSDefault(text == nullptr ? "" : text);
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(object);
}

py::list Inspect(const std::string& stage, const std::string& path,
                 const std::vector<std::string>& plugin_path) {
  using Fields = std::vector<std::pair<std::string, std::string>>;
  Fields fields;
  Status status;
  {
    const GilRelease no_gil;
    PluginPtr plugin;
    const auto& table = Find(stage, plugin_path, plugin);
    status =
        table.inspect(path.c_str(), &fields, [](void* ctx, const char* name, const char* value) {
          static_cast<Fields*>(ctx)->emplace_back(name, value);
        });
  }
  ThrowIfFailed(status);
  py::list list;
  for (const auto& [name, value] : fields) {
    list.append(py::make_tuple(Text(name.c_str()), Text(value.c_str())));
  }
  return list;
}

// What a callback sees of one AdminEntryV1, which lives no longer than the callback.
struct AdminEntry {
  std::uint32_t kind;
  std::uint32_t verdict;
  std::uint32_t action;
  std::uint64_t size_bytes;
  std::uint64_t disk_bytes;
  std::int64_t mtime_ns;
  py::str path;
  py::str namespace_label;
  py::str text;
};

// One walk. The callbacks may come from any thread, even from several.
struct Walk {
  py::object total;
  py::object entry;
  std::exception_ptr failure;  // the first; guarded by the GIL

  template <typename Call>
  bool Guarded(Call call) noexcept {
    const py::gil_scoped_acquire gil;
    if (failure) return false;
    try {
      return call();
    } catch (...) {  // the ABI's edge; it goes on in Visit
      failure = std::current_exception();
      return false;
    }
  }
};

void OnTotal(void* ctx, std::uint64_t files) {
  auto* walk = static_cast<Walk*>(ctx);
  if (walk->total.is_none()) return;
  walk->Guarded([&] {
    walk->total(files);
    return true;
  });
}

bool OnEntry(void* ctx, const AdminEntryV1* entry) {
  auto* walk = static_cast<Walk*>(ctx);
  return walk->Guarded([&] {
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    const py::object answer = walk->entry(AdminEntry{
        static_cast<std::uint32_t>(entry->kind), static_cast<std::uint32_t>(entry->verdict),
        static_cast<std::uint32_t>(entry->action), entry->size_bytes, entry->disk_bytes,
        entry->mtime_ns, Text(entry->path), Text(entry->namespace_label), Text(entry->text)});
    return !answer.equal(py::bool_(false));
  });
}

void Visit(const std::string& stage, const std::string& root,
           const std::optional<std::string>& namespace_label, std::uint32_t flags, py::object total,
           py::object entry, const std::vector<std::string>& plugin_path) {
  Walk walk{std::move(total), std::move(entry), nullptr};
  Status status;
  {
    const GilRelease no_gil;
    PluginPtr plugin;
    const auto& table = Find(stage, plugin_path, plugin);
    status = table.walk(root.c_str(), namespace_label ? namespace_label->c_str() : nullptr, flags,
                        &walk, &OnTotal, &OnEntry);
  }
  if (walk.failure) std::rethrow_exception(walk.failure);
  ThrowIfFailed(status);
}

}  // namespace

void RegisterAdmin(py::module_& module) {
  using Folders = std::vector<std::string>;
  py::class_<AdminEntry>(module, "AdminEntry")
      .def_readonly("kind", &AdminEntry::kind)
      .def_readonly("verdict", &AdminEntry::verdict)
      .def_readonly("action", &AdminEntry::action)
      .def_readonly("path", &AdminEntry::path)
      .def_readonly("namespace_label", &AdminEntry::namespace_label)
      .def_readonly("text", &AdminEntry::text)
      .def_readonly("size_bytes", &AdminEntry::size_bytes)
      .def_readonly("disk_bytes", &AdminEntry::disk_bytes)
      .def_readonly("mtime_ns", &AdminEntry::mtime_ns);
  OnlyMadeHere(module.attr("AdminEntry"));
  module.attr("ADMIN_READ") = kAdminRead;
  module.attr("ADMIN_REPAIR") = kAdminRepair;
  module.attr("ADMIN_PURGE") = kAdminPurge;
  module.def("admin_inspect", &Inspect, py::arg("stage"), py::arg("path"),
             py::arg("plugin_path") = Folders());
  module.def("admin_walk", &Visit, py::arg("stage"), py::arg("root"),
             py::arg("namespace_label") = py::none(), py::arg("flags") = 0,
             py::arg("total") = py::none(), py::arg("entry"), py::arg("plugin_path") = Folders());
}

}  // namespace ucmstore::python
