// SPDX-License-Identifier: Apache-2.0
//
// Shelf: a terminal stage of one's own in thirty lines, built from the SDK. The medium is a map in
// memory, but it might as well be a server: all it can do is has, get and put. ObjectStage brings
// everything else: checks, tasks, deadlines, counted commit, checksums, bounds. Thread-safe.
#include <map>
#include <mutex>

#include "task/object_stage.h"
#include "task/stage_plugin.h"

namespace {

using namespace ucmstore;  // NOLINT(google-build-using-namespace): short is the point here

class Shelf final : public ObjectStage {
 public:
  Shelf() : ObjectStage("Shelf", {.in_memory = true}) {}

 private:
  Result<bool> Has(const std::string& name) override {
    const std::scoped_lock lock(mutex_);
    return objects_.contains(name);
  }
  Result<Object> Get(const std::string& name) override {
    const std::scoped_lock lock(mutex_);
    const auto found = objects_.find(name);
    if (found == objects_.end()) return Failure(Code::kNotFound, "not on the shelf");
    return found->second;
  }
  Status Put(const std::string& name, Object object) override {
    const std::scoped_lock lock(mutex_);
    objects_[name] = std::move(object);
    return Status::Ok();
  }

  std::mutex mutex_;
  std::map<std::string, Object> objects_;
};

}  // namespace

extern "C" const PluginV1* ucmstore_plugin_v1() {
  static constexpr auto kTable = MakePlugin<Shelf>("Shelf", "1.0", {});
  return &kTable;
}
