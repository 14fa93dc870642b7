// SPDX-License-Identifier: Apache-2.0
//
// What can be opened, and how: the option tables of the store and of all plugins, where plugins are
// looked for, sizes in words.
#include <dlfcn.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "options/option_set.h"
#include "options/size.h"
#include "pipeline/option_tables.h"
#include "pipeline/plugin_search.h"
#include "python/errors.h"
#include "python/gil.h"
#include "python/register.h"

namespace ucmstore::python {

namespace py = pybind11;

namespace {

using Folders = std::vector<std::string>;

py::dict ToDict(const OptionRow& row) {
  py::dict dict;
  dict["name"] = row.name;
  dict["type"] = OptionTypeName(row.type);
  dict["default"] = row.default_text;
  dict["range"] = row.range;
  dict["help"] = row.help;
  return dict;
}

// The store's own table first, then one for each plugin.
py::list Plugins(const Folders& plugin_path) {
  std::vector<OptionTable> tables;
  {
    const GilRelease no_gil;
    tables = OptionTables(plugin_path);
  }
  py::list list;
  for (const auto& table : tables) {
    py::list options;
    for (const auto& row : table.options) options.append(ToDict(row));
    py::dict dict;
    dict["scope"] = table.scope;
    dict["stage"] = table.stage;
    dict["version"] = table.version;
    dict["path"] = table.path;
    dict["terminal"] = table.is_terminal;
    dict["options"] = options;
    list.append(dict);
  }
  return list;
}

// Where plugins are looked for, and what is there and no good.
py::dict Search(const Folders& plugin_path) {
  py::dict result;
  Folders folders;
  Folders problems;
  {
    const GilRelease no_gil;
    folders = PluginDirectories(plugin_path);
    problems = ListPlugins(plugin_path).problems;
  }
  result["folders"] = folders;
  result["problems"] = problems;
  return result;
}

// Of the object that this very code is in.
std::string CorePath() {
  Dl_info info{};
  static const char kHere = 0;
  return ::dladdr(&kHere, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

std::uint64_t SizeInBytes(const std::string& text) {
  const auto size = ParseSize(text);
  if (!size) ThrowArgument(size.error().message);
  return *size;
}

}  // namespace

void RegisterOptions(py::module_& module) {
  module.def("plugins", &Plugins, py::arg("plugin_path") = Folders());
  module.def("plugin_search", &Search, py::arg("plugin_path") = Folders());
  module.def("core_path", &CorePath);
  module.def("parse_size", &SizeInBytes, py::arg("text"));
  module.def("format_size", &FormatSize, py::arg("size_bytes"));
}

}  // namespace ucmstore::python
