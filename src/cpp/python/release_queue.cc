// SPDX-License-Identifier: Apache-2.0
//
// One list under one lock, and a call into the interpreter at its next chance. See
// release_queue.h.
#include "python/release_queue.h"

#include <pthread.h>

#include <atomic>
#include <vector>

#include "base/mutex.h"

namespace ucmstore::python {

namespace {

struct Queue {
  Mutex mutex;  // never held while waiting for the GIL
  std::vector<PyObject*> objects UCMSTORE_GUARDED_BY(mutex);
  bool asked UCMSTORE_GUARDED_BY(mutex) = false;    // a pending call is on its way
  bool exiting UCMSTORE_GUARDED_BY(mutex) = false;  // no interpreter to ask any more
  std::atomic<bool> waiting{false};
};

// Never destroyed: threads of a store that could not be closed may outlive everything.
Queue& TheQueue() {
  static auto& queue = *new Queue;
  return queue;
}

int PendingCall(void* /*unused*/) {
  ReleaseNow();
  return 0;
}

// A fork must not find the queue locked by a thread that the child does not have.
void BeforeFork() UCMSTORE_LOCKS_UNSEEN { TheQueue().mutex.Lock(); }
void AfterFork() UCMSTORE_LOCKS_UNSEEN { TheQueue().mutex.Unlock(); }

}  // namespace

void ReleaseLater(PyObject* object, bool ask) noexcept {
  if (object == nullptr) return;
  Queue& queue = TheQueue();
  const MutexLock lock(queue.mutex);
  if (queue.exiting) return;
  try {
    queue.objects.push_back(object);
  } catch (...) {  // no memory for the pointer: the object stays, which is safe
    return;
  }
  queue.waiting.store(true, std::memory_order_release);
  // One at a time: the interpreter has room for few.
  if (ask && !queue.asked) queue.asked = Py_AddPendingCall(&PendingCall, nullptr) == 0;
}

void ReleaseNow() noexcept {
  Queue& queue = TheQueue();
  if (!queue.waiting.load(std::memory_order_acquire)) return;
  std::vector<PyObject*> objects;
  {
    const MutexLock lock(queue.mutex);
    objects.swap(queue.objects);
    queue.asked = false;
    queue.waiting.store(false, std::memory_order_release);
  }
  for (auto* object : objects) Py_DECREF(object);
}

void StartReleaseQueue() { pthread_atfork(&BeforeFork, &AfterFork, &AfterFork); }

void EndReleaseQueue() {
  const MutexLock lock(TheQueue().mutex);
  TheQueue().exiting = true;
}

}  // namespace ucmstore::python
