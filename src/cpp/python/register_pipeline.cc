// SPDX-License-Identifier: Apache-2.0
//
// Pipeline and Task: an open store and its loads and dumps, as thin as they can be. What is
// pleasant (keywords, memory in any form, errors of a task in words) is ucmstore.store and
// ucmstore.task. Every call that may block lets other Python threads run.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "pipeline/pipeline.h"
#include "python/arguments.h"
#include "python/errors.h"
#include "python/gil.h"
#include "python/py_lease.h"
#include "python/register.h"
#include "python/release_queue.h"
#include "python/task_hub.h"
#include "python/transfer_plan.h"

namespace ucmstore::python {

namespace py = pybind11;

namespace {

// How long a thread waits before it looks for Ctrl-C.
constexpr milliseconds kSignalInterval{50};

// The Python object of a task. Losing it parks the task.
class PyTask {
 public:
  explicit PyTask(TaskPtr task) : task_(std::move(task)) {}
  PyTask(PyTask&&) = default;
  PyTask& operator=(PyTask&&) = delete;
  ~PyTask() {
    if (task_ == nullptr) return;
    task_->hub->Park(*task_);
    ReleaseNow();
  }

  [[nodiscard]] TaskId id() const noexcept { return task_->id; }
  [[nodiscard]] bool HasEnded() const { return task_->hub->HasEnded(*task_); }

  // True: it has ended and is retired.
  [[nodiscard]] bool Wait(const py::object& timeout) const {
    const auto timeout_ms = TimeoutMs(timeout.ptr(), /*zero_is_allowed=*/true);
    const auto start = std::chrono::steady_clock::now();
    for (;;) {
      auto until = std::chrono::steady_clock::now() + kSignalInterval;
      bool last = false;
      if (timeout_ms && start + milliseconds(*timeout_ms) <= until) {
        until = start + milliseconds(*timeout_ms);
        last = true;
      }
      Result<bool> ended = false;
      {
        const GilRelease no_gil;
        ended = task_->hub->Wait(*task_, until);
      }
      ReleaseNow();
      if (ValueOrThrow(ended)) return true;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (last) return false;
    }
  }

  void Cancel() const {
    Status status;
    {
      const GilRelease no_gil;
      status = task_->hub->Cancel(*task_);
    }
    ThrowIfFailed(status);
  }

  // Requires: retired.
  [[nodiscard]] py::tuple Outcome() const {
    const Status& status = task_->status;
    auto* text = PyUnicode_DecodeUTF8(status.message, static_cast<Py_ssize_t>(status.text().size()),
                                      "replace");
    if (text == nullptr) throw py::error_already_set();
    return py::make_tuple(static_cast<int>(status.code), status.sys_errno,
                          py::reinterpret_steal<py::str>(text));
  }
  [[nodiscard]] py::tuple Results() const {
    const auto& results = task_->results;
    py::array_t<std::int32_t> codes(static_cast<py::ssize_t>(results.size()));
    py::array_t<std::uint32_t> lengths(static_cast<py::ssize_t>(results.size()));
    std::transform(results.begin(), results.end(), codes.mutable_data(),
                   [](const ShardResult& result) { return static_cast<int>(result.code); });
    std::transform(results.begin(), results.end(), lengths.mutable_data(),
                   [](const ShardResult& result) { return result.bytes; });
    return py::make_tuple(codes, lengths);
  }

  [[nodiscard]] bool BeginAwait() const { return task_->hub->BeginAwait(*task_); }
  void EndAwait() const { task_->hub->EndAwait(*task_); }

 private:
  TaskPtr task_;
};

class PyPipeline {
 public:
  PyPipeline(std::string spec, std::uint64_t shard_size, std::uint32_t shards_per_block,
             const Namespace& name_space, const py::dict& options) {
    PipelineConfig config{.spec = std::move(spec),
                          .shard_size = shard_size,
                          .shards_per_block = shards_per_block,
                          .options = ToStageOptions(options)};
    Result<std::unique_ptr<Pipeline>> pipeline;
    {
      const GilRelease no_gil;
      pipeline = Pipeline::Open(config, name_space);
    }
    hub_ = std::make_shared<TaskHub>(ValueOrThrow(std::move(pipeline), Origin::kOpen));
  }
  PyPipeline(const PyPipeline&) = delete;
  PyPipeline& operator=(const PyPipeline&) = delete;
  // Callbacks must not be the last to hold the hub, so it is closed before it is let go.
  ~PyPipeline() {
    if (hub_ == nullptr) return;
    const GilRelease no_gil;
    try {
      std::ignore = hub_->Close(kLastCloseMs);
    } catch (...) {  // out of memory for the list of stores that are left alone
    }
    hub_.reset();
  }

  [[nodiscard]] py::array_t<std::uint8_t> Lookup(const py::object& ids, bool touch,
                                                 const py::object& timeout) const {
    const BlockIds blocks(ids.ptr());
    LookupDesc desc = Describe(blocks, touch, timeout);
    py::array_t<std::uint8_t> found(static_cast<py::ssize_t>(blocks.count()));
    std::uint8_t* answers = found.mutable_data();
    Status status;
    {
      const GilRelease no_gil;
      status = hub_->pipeline().Lookup(desc, answers);
    }
    ThrowIfFailed(status);
    return found;
  }

  [[nodiscard]] std::uint32_t LookupPrefix(const py::object& ids, bool touch,
                                           const py::object& timeout) const {
    const BlockIds blocks(ids.ptr());
    const LookupDesc desc = Describe(blocks, touch, timeout);
    Result<std::uint32_t> hits = 0;
    {
      const GilRelease no_gil;
      hits = hub_->pipeline().LookupPrefix(blocks.get(), desc.flags, desc.timeout_ms);
    }
    return ValueOrThrow(hits);
  }

  [[nodiscard]] std::unique_ptr<PyTask> Load(const py::object& ids,
                                             std::optional<std::uint32_t> shard,
                                             const py::object& addresses, const py::object& sizes,
                                             const py::object& timeout, std::int32_t priority,
                                             const py::object& memory) const {
    return Transfer(TaskKind::kLoad, ids, shard, addresses, sizes, timeout, priority, memory);
  }
  [[nodiscard]] std::unique_ptr<PyTask> Dump(const py::object& ids,
                                             std::optional<std::uint32_t> shard,
                                             const py::object& addresses, const py::object& sizes,
                                             const py::object& timeout, std::int32_t priority,
                                             const py::object& memory) const {
    return Transfer(TaskKind::kDump, ids, shard, addresses, sizes, timeout, priority, memory);
  }
  [[nodiscard]] std::unique_ptr<PyTask> Prefetch(const py::object& ids,
                                                 std::optional<std::uint32_t> shard,
                                                 const py::object& timeout,
                                                 std::int32_t priority) const {
    const BlockIds blocks(ids.ptr());
    const auto timeout_ms = TimeoutMs(timeout.ptr(), /*zero_is_allowed=*/false);
    return Begin(TaskKind::kLoad, timeout_ms, priority, py::none(), [&] {
      return TransferPlan::MakePrefetch(blocks.get(), shard, shards_per_block());
    });
  }

  [[nodiscard]] std::unique_ptr<PyLease> Acquire(const py::object& ids) const {
    const BlockIds blocks(ids.ptr());
    return Leased([&] { return hub_->pipeline().Acquire(blocks.get()); });
  }
  [[nodiscard]] std::unique_ptr<PyLease> Reserve(const py::object& ids,
                                                 std::optional<std::uint32_t> shard) const {
    const BlockIds blocks(ids.ptr());
    const std::uint32_t count = shard ? 1 : shards_per_block();
    return Leased([&] { return hub_->pipeline().Reserve(blocks.get(), shard.value_or(0), count); });
  }
  [[nodiscard]] py::tuple RingMemory() const {
    const LeaseMemoryV1 memory = ValueOrThrow(hub_->pipeline().RingMemory());
    return py::make_tuple(reinterpret_cast<std::uintptr_t>(memory.base), memory.bytes);
  }

  // Ids and codes of the tasks that ended.
  [[nodiscard]] py::tuple Poll(std::size_t at_most) const {
    std::vector<TaskPtr> tasks;
    {
      const GilRelease no_gil;
      tasks = hub_->Poll(at_most);
    }
    py::array_t<std::uint64_t> ids(static_cast<py::ssize_t>(tasks.size()));
    py::array_t<std::int32_t> codes(static_cast<py::ssize_t>(tasks.size()));
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      ids.mutable_data()[i] = tasks[i]->id;
      codes.mutable_data()[i] = static_cast<std::int32_t>(tasks[i]->status.code);
    }
    ReleaseNow();
    return py::make_tuple(ids, codes);
  }
  [[nodiscard]] int PollFd() const { return ValueOrThrow(hub_->PollFd()); }
  [[nodiscard]] int AwaitFd() const { return ValueOrThrow(hub_->AwaitFd()); }
  [[nodiscard]] std::vector<TaskId> TakeAwaited() const { return hub_->TakeAwaited(); }

  // By stage and name, and the tasks that Python has in flight.
  [[nodiscard]] py::tuple Stats() const {
    std::vector<StageMetric> metrics;
    {
      const GilRelease no_gil;
      metrics = hub_->pipeline().Stats();
    }
    ReleaseNow();
    py::list list;
    for (const auto& metric : metrics) {
      list.append(py::make_tuple(metric.stage, metric.name, metric.kind == MetricKind::kCounter,
                                 metric.value));
    }
    const auto counts = hub_->Count();
    return py::make_tuple(list, counts.in_flight, counts.parked);
  }

  void Close(std::uint32_t timeout_ms) const {
    Status status;
    {
      const GilRelease no_gil;
      status = hub_->Close(timeout_ms);
    }
    ReleaseNow();
    ThrowIfFailed(status);
  }

  [[nodiscard]] bool InItsProcess() const { return hub_->InItsProcess(); }
  [[nodiscard]] std::uint64_t shard_size() const { return hub_->pipeline().config().shard_size; }
  [[nodiscard]] std::uint32_t shards_per_block() const {
    return hub_->pipeline().config().shards_per_block;
  }

 private:
  static constexpr std::uint32_t kLastCloseMs = 5'000;

  static LookupDesc Describe(const BlockIds& blocks, bool touch, const py::object& timeout) {
    LookupDesc desc;
    desc.flags = touch ? 0 : kNoTouch;
    desc.blocks = blocks.get().data();
    desc.count = blocks.count();
    desc.timeout_ms = TimeoutMs(timeout.ptr(), /*zero_is_allowed=*/false).value_or(0);
    return desc;
  }

  [[nodiscard]] std::unique_ptr<PyTask> Transfer(TaskKind kind, const py::object& ids,
                                                 std::optional<std::uint32_t> shard,
                                                 const py::object& addresses,
                                                 const py::object& sizes, const py::object& timeout,
                                                 std::int32_t priority,
                                                 const py::object& memory) const {
    const BlockIds blocks(ids.ptr());
    const Column address_column(addresses.ptr(), "addresses");
    const Column size_column(sizes.ptr(), "sizes");
    const auto timeout_ms = TimeoutMs(timeout.ptr(), /*zero_is_allowed=*/false);
    return Begin(kind, timeout_ms, priority, memory, [&] {
      return TransferPlan::Make({blocks.get(), address_column.get(), size_column.get(), shard},
                                shard_size(), shards_per_block());
    });
  }

  template <typename Ask>
  [[nodiscard]] std::unique_ptr<PyLease> Leased(Ask&& ask) const {
    Result<std::unique_ptr<Lease>> lease;
    {
      const GilRelease no_gil;
      lease = ask();
    }
    return std::make_unique<PyLease>(ValueOrThrow(std::move(lease)), shard_size(),
                                     shards_per_block());
  }

  template <typename MakePlan>
  [[nodiscard]] std::unique_ptr<PyTask> Begin(TaskKind kind,
                                              std::optional<std::uint32_t> timeout_ms,
                                              std::int32_t priority, py::object memory,
                                              MakePlan make_plan) const {
    ReleaseNow();
    Result<TaskPtr> task;
    {
      const GilRelease no_gil;
      const Result<TransferPlan> plan = make_plan();
      if (!plan) throw StatusError(plan.error());
      TaskDesc desc;
      desc.shards = plan->shards().data();
      desc.shard_count = static_cast<std::uint32_t>(plan->shards().size());
      desc.timeout_ms = timeout_ms.value_or(0);
      desc.priority = priority;
      task = hub_->Submit(kind, desc, memory.ptr());
    }
    if (!task) throw StatusError(task.error());
    memory.release();  // the hub's now
    return std::make_unique<PyTask>(*std::move(task));
  }

  std::shared_ptr<TaskHub> hub_;
};

}  // namespace

void RegisterPipeline(py::module_& module) {
  py::class_<PyTask>(module, "Task")
      .def_property_readonly("id", &PyTask::id)
      .def("has_ended", &PyTask::HasEnded)
      .def("wait", &PyTask::Wait, py::arg("timeout"))
      .def("cancel", &PyTask::Cancel)
      .def("outcome", &PyTask::Outcome)
      .def("results", &PyTask::Results)
      .def("begin_await", &PyTask::BeginAwait)
      .def("end_await", &PyTask::EndAwait);
  OnlyMadeHere(module.attr("Task"));
  py::class_<PyPipeline>(module, "Pipeline")
      .def(py::init<std::string, std::uint64_t, std::uint32_t, const Namespace&, const py::dict&>(),
           py::arg("spec"), py::arg("shard_size"), py::arg("shards_per_block"),
           py::arg("name_space"), py::arg("options"))
      .def("lookup", &PyPipeline::Lookup, py::arg("ids"), py::arg("touch"), py::arg("timeout"))
      .def("lookup_prefix", &PyPipeline::LookupPrefix, py::arg("ids"), py::arg("touch"),
           py::arg("timeout"))
      .def("load", &PyPipeline::Load, py::arg("ids"), py::arg("shard"), py::arg("addresses"),
           py::arg("sizes"), py::arg("timeout"), py::arg("priority"), py::arg("memory"))
      .def("dump", &PyPipeline::Dump, py::arg("ids"), py::arg("shard"), py::arg("addresses"),
           py::arg("sizes"), py::arg("timeout"), py::arg("priority"), py::arg("memory"))
      .def("prefetch", &PyPipeline::Prefetch, py::arg("ids"), py::arg("shard"), py::arg("timeout"),
           py::arg("priority"))
      .def("acquire", &PyPipeline::Acquire, py::arg("ids"))
      .def("reserve", &PyPipeline::Reserve, py::arg("ids"), py::arg("shard"))
      .def("ring_memory", &PyPipeline::RingMemory)
      .def("poll", &PyPipeline::Poll, py::arg("at_most"))
      .def("poll_fd", &PyPipeline::PollFd)
      .def("await_fd", &PyPipeline::AwaitFd)
      .def("take_awaited", &PyPipeline::TakeAwaited)
      .def("stats", &PyPipeline::Stats)
      .def("close", &PyPipeline::Close, py::arg("timeout_ms"))
      .def_property_readonly("in_its_process", &PyPipeline::InItsProcess);
}

}  // namespace ucmstore::python
