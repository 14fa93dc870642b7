// SPDX-License-Identifier: Apache-2.0
//
// Where plugins are looked for, and the words when one is not found.
#include "pipeline/plugin_search.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "options/words.h"
#include "pipeline/spec.h"

namespace ucmstore {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFilePrefix = "libucmstore_";
constexpr std::string_view kFileSuffix = ".so";
constexpr std::string_view kStagesFolder = "ucmstore_stages";

std::string FileName(std::string_view stage) {
  return std::string(kFilePrefix) + LowerCase(stage) + std::string(kFileSuffix);
}

std::string PathIn(const std::string& directory, std::string_view file) {
  return directory + (directory.ends_with('/') ? "" : "/") + std::string(file);
}

// The file that `address` was loaded from, as the kernel knows it: always an absolute path.
std::string MappedFile(const void* address) {
  std::ifstream maps("/proc/self/maps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  for (std::string line; std::getline(maps, line);) {
    char* end = nullptr;
    const auto low = std::strtoull(line.c_str(), &end, 16);
    if (*end != '-') continue;
    const auto high = std::strtoull(end + 1, nullptr, 16);
    const std::size_t path = line.find('/');
    if (wanted >= low && wanted < high && path != std::string::npos) return line.substr(path);
  }
  return {};
}

// The folder of the core library: of the object that this very function is in, which is not where
// the Python package lies when that is installed editable.
std::string CoreDirectory() {
  const auto* address = reinterpret_cast<const void*>(&CoreDirectory);
  Dl_info info{};
  std::string file;
  if (::dladdr(address, &info) != 0 && info.dli_fname != nullptr) file = info.dli_fname;
  // A program's own name is whatever its parent passed, and a relative one was relative to
  // another working folder.
  if (!file.starts_with('/')) file = MappedFile(address);
  return fs::path(file).parent_path().string();
}

// The names of the stages that have a file in some folder, in lower case, each with its path.
std::map<std::string, std::string> StageFiles(std::span<const std::string> directories) {
  std::map<std::string, std::string> files;
  for (const std::string& directory : directories) {
    std::error_code error;
    fs::directory_iterator entries(directory, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      const std::string file = entries->path().filename().string();
      const bool named = file.starts_with(kFilePrefix) && file.ends_with(kFileSuffix) &&
                         file.size() > kFilePrefix.size() + kFileSuffix.size();
      if (!named) continue;
      const std::string stage =
          file.substr(kFilePrefix.size(), file.size() - kFilePrefix.size() - kFileSuffix.size());
      files.emplace(stage, PathIn(directory, file));  // the first folder wins
    }
  }
  return files;
}

struct Tried {
  std::string directory;
  std::string reason;
};

std::string CutMiddle(const std::string& text, std::size_t room) {
  if (text.size() <= room || room < 8) return text;
  const std::size_t head = (room - 3) / 2;
  return text.substr(0, head) + "..." + text.substr(text.size() - (room - 3 - head));
}

// "no stage "Posixx": looked for libucmstore_posixx.so in A (reason), B (reason); did you mean
// "Posix"?" Folders give way, so that each and its reason fits into a Status.
std::string Report(std::string_view head, std::string_view name, std::span<const Tried> tried,
                   std::string_view nearest) {
  std::string begin(head);
  begin += ": looked for " + CutMiddle(FileName(name), 48) + " in ";
  std::string end;
  if (!nearest.empty()) end = "; did you mean " + Quote(nearest) + "?";
  std::size_t fixed = begin.size() + end.size();
  for (const Tried& one : tried) fixed += one.reason.size() + 5;
  constexpr std::size_t kMessage = sizeof(Status::message) - 1;
  constexpr std::size_t kLeastRoom = 16;
  const std::size_t left = kMessage > fixed ? kMessage - fixed : 0;
  const std::size_t room = std::max(kLeastRoom, tried.empty() ? 0 : left / tried.size());
  std::string text = begin;
  for (const Tried& one : tried) {
    if (&one != tried.data()) text += ", ";
    text += CutMiddle(one.directory, room) + " (" + one.reason + ")";
  }
  return text + end;
}

// The proper name of the stage whose file's name is nearest, of those that can be loaded at all.
std::string NearestStage(std::string_view wanted, std::span<const std::string> directories) {
  constexpr int kTries = 4;  // each loads code
  std::map<std::string, std::string> files = StageFiles(directories);
  for (int i = 0; i < kTries && !files.empty(); ++i) {
    std::vector<std::string> names;
    names.reserve(files.size());
    for (const auto& [name, path] : files) names.push_back(name);
    const std::string nearest(Nearest(wanted, names));
    if (nearest.empty()) break;
    const Result<PluginPtr> plugin = Plugin::Load(files.at(nearest), "");
    if (plugin) return std::string((*plugin)->name());
    files.erase(nearest);
  }
  return {};
}

// The name of the good plugin in the file, if it differs from `wanted` in upper and lower case
// only.
std::string ProperName(const std::string& path, std::string_view wanted) {
  const Result<PluginPtr> plugin = Plugin::Load(path, "");
  if (!plugin || (*plugin)->name() == wanted) return {};
  return LowerCase((*plugin)->name()) == LowerCase(wanted) ? std::string((*plugin)->name()) : "";
}

}  // namespace

std::vector<std::string> PluginDirectories(std::span<const std::string> plugin_path) {
  std::vector<std::string> directories(plugin_path.begin(), plugin_path.end());
  if (const char* variable = std::getenv("UCMSTORE_PLUGIN_PATH"); variable != nullptr) {
    std::string_view rest = variable;
    while (!rest.empty()) {
      const std::size_t colon = std::min(rest.find(':'), rest.size());
      directories.emplace_back(rest.substr(0, colon));
      rest.remove_prefix(std::min(colon + 1, rest.size()));
    }
  }
  directories.push_back(PathIn(CoreDirectory(), kStagesFolder));
  // An empty entry would be the working folder: never load code from wherever somebody happens to
  // be.
  std::erase_if(directories, [](const std::string& directory) { return directory.empty(); });
  return directories;
}

Result<PluginPtr> FindPlugin(std::string_view name, std::span<const std::string> plugin_path) {
  const std::vector<std::string> directories = PluginDirectories(plugin_path);
  const std::string file = FileName(name);
  std::vector<Tried> tried;
  for (const std::string& directory : directories) {
    const std::string path = PathIn(directory, file);
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (status.type() == fs::file_type::not_found) {
      const bool no_folder = !fs::is_directory(directory, error);
      tried.push_back({directory, no_folder ? "no such folder" : "no such file"});
      continue;
    }
    if (status.type() == fs::file_type::none) {
      tried.push_back({directory, error.message()});
      continue;
    }
    Result<PluginPtr> plugin = Plugin::Load(path, name);
    if (plugin) return plugin;
    if (const std::string proper = ProperName(path, name); !proper.empty()) {
      return Failure(Code::kInvalidArgument, "no stage " + Quote(name) +
                                                 ": upper and lower case count; did you mean " +
                                                 Quote(proper) + "?");
    }
    tried.push_back({directory, std::string(plugin.error().text())});
    const std::string nearest = NearestStage(name, directories);
    return Failure(plugin.error().code, Report("stage " + Quote(name) + " is unusable", name, tried,
                                               nearest == name ? "" : nearest));
  }
  return Failure(Code::kInvalidArgument,
                 Report("no stage " + Quote(name), name, tried, NearestStage(name, directories)));
}

PluginList ListPlugins(std::span<const std::string> plugin_path) {
  PluginList list;
  const std::vector<std::string> directories = PluginDirectories(plugin_path);
  for (const auto& [stage, path] : StageFiles(directories)) {
    Result<PluginPtr> plugin = Plugin::Load(path, "");
    if (plugin && LowerCase((*plugin)->name()) != stage) {
      list.problems.push_back(path + ": it provides the stage " + Quote((*plugin)->name()));
    } else if (plugin) {
      list.plugins.push_back(*std::move(plugin));
    } else {
      list.problems.push_back(path + ": " + std::string(plugin.error().text()));
    }
  }
  std::ranges::sort(list.plugins, {}, [](const PluginPtr& plugin) { return plugin->name(); });
  return list;
}

}  // namespace ucmstore
