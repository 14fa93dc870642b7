// SPDX-License-Identifier: Apache-2.0
//
// An explorer of interleavings: runs the ring's real code under every schedule, within bounds. The
// actors of a scenario are fibers of one thread, each a process of its own (a Ring with its own
// place). At each pause point of the ring the explorer chooses: the actor goes on, another one goes
// on instead (a preemption), or its process dies there, which means that it never runs again. It
// goes through all choices, depth first, by running the scenario again and again from the start.
//
// After every step the state of the ring is judged, and once more when all have ended and the dead
// have been reaped: see World. What runs between two pause points is atomic here; what memory order
// adds to that is the matter of ring_memory_order_test.cc. Single-threaded.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shm/ring_fixture.h"
#include "shm/transitions.h"

namespace ucmstore::test {

class Explorer;
class World;

// The places of the actors lie around the end of the first word of pins.
[[nodiscard]] constexpr std::uint32_t PlaceOf(std::size_t actor) noexcept {
  return 63 + static_cast<std::uint32_t>(actor);
}

// A pin that the world knows of: while it is held, the slot must not change its block.
class Held {
 public:
  Held() = default;
  Held(World* world, std::size_t actor, Pin pin, const BlockId& block);
  Held(Held&& other) noexcept
      : world_(std::exchange(other.world_, nullptr)),
        number_(other.number_),
        pin_(std::move(other.pin_)) {}
  Held& operator=(Held&&) = delete;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { (void)Take(); }

  [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(pin_); }
  [[nodiscard]] const Pin& pin() const noexcept { return pin_; }
  [[nodiscard]] Pin Take() noexcept;  // the world forgets it

 private:
  World* world_ = nullptr;
  std::uint64_t number_ = 0;
  Pin pin_;
};

// An actor, as its role's code sees it.
class Player {
 public:
  Player(World* world, std::size_t number, std::unique_ptr<Ring> ring)
      : world_(world), number_(number), ring_(std::move(ring)) {}

  [[nodiscard]] Ring& ring() noexcept { return *ring_; }
  [[nodiscard]] World& world() noexcept { return *world_; }

  void Rest();  // a pause point of the test's own
  [[nodiscard]] Held Find(const BlockId& block);
  [[nodiscard]] std::pair<Held, bool> Claim(const BlockId& block, Ring::Purpose purpose);
  // Copies in each shard that nobody has begun. True: that made the block whole.
  bool Bring(const Held& held);
  bool BringShard(const Held& held, std::uint32_t shard);
  // Finds, and reads what is there. True: the block was whole, and right.
  bool Load(const BlockId& block);
  // Claims, and brings, with a rest in between.
  bool Put(const BlockId& block, Ring::Purpose purpose);
  // Reaps the dead, takes over their duties and fulfils them.
  void Reap();
  void Fail(std::string what);

 private:
  World* world_;
  std::size_t number_;
  std::unique_ptr<Ring> ring_;
};

struct Role {
  std::string_view name;
  std::function<void(Player&)> act;
  bool reaps = false;  // begins when somebody has died
};

struct Scenario {
  std::string_view name;
  RingGeometry geometry;
  std::function<void(World&)> prepare;  // no pauses in there
  std::vector<Role> roles;
  // Called at the end, with the dead reaped: says what is wrong, or nothing.
  std::function<std::string(World&)> judge;
  int preemptions = 4;             // while nobody dies
  int preemptions_and_death = 3;   // if one does
  int preemptions_and_deaths = 1;  // if two do
  bool exhaust = false;            // small enough for no bound at all
};

// The ring of one run and what is known about it.
class World {
 public:
  World(Explorer* explorer, const RingGeometry& geometry) : explorer_(explorer), arena_(geometry) {}

  [[nodiscard]] RingArena& arena() noexcept { return arena_; }
  [[nodiscard]] Ring& janitor() noexcept { return *janitor_; }  // of a place that nobody else has
  [[nodiscard]] bool somebody_died() const noexcept { return !dead_.empty(); }
  [[nodiscard]] Explorer& explorer() noexcept { return *explorer_; }

  // For `prepare`: a whole block in a slot of its own.
  void Put(const BlockId& block, Ring::Purpose purpose = Ring::Purpose::kFill);
  // Dirty, of the actor with that number.
  void PutDirtyOf(const BlockId& block, std::uint32_t place);
  // How many slots have been decided to hold it, and the word of the last of them.
  [[nodiscard]] std::uint32_t CountOf(const BlockId& block, SlotWord* word = nullptr) const;

  int tally[4] = {};  // for roles and judges; 0 at first

 private:
  friend class Explorer;
  friend class Held;
  friend class Player;
  struct Hold {
    std::uint64_t number;
    std::size_t actor;
    std::uint32_t slot;
    std::uint64_t generation;
    BlockId block;
  };

  void Reset();
  [[nodiscard]] std::string Check();  // after a step
  [[nodiscard]] std::string CheckSlot(std::uint32_t slot);
  [[nodiscard]] std::string CheckEnd();  // reaps first
  [[nodiscard]] std::string ClaimAll();  // no slot has leaked
  void Died(std::size_t actor);
  // As the kernel's lock of a dead one's byte: for one at a time, and gone with its holder.
  [[nodiscard]] bool Lock(std::uint32_t place, std::size_t actor);

  Explorer* explorer_;
  RingArena arena_;
  std::unique_ptr<Ring> janitor_;
  std::vector<Hold> holds_;
  std::uint64_t next_hold_ = 0;
  std::array<std::size_t, kMaxProcesses> reapers_{};  // by place
  std::array<bool, kMaxProcesses> reaped_{};
  std::vector<std::uint32_t> dead_;   // places
  std::vector<std::uint64_t> dirty_;  // by slot: generation + 1 of a dirty block
};

// "before drain"
[[nodiscard]] std::string NameOf(const Pause& pause);

// How often each pause point was passed, and died at.
struct Coverage {
  struct Point {
    std::uint64_t passed = 0;
    std::uint64_t died = 0;
  };
  // By role, step, transition (of a swap), moment.
  std::map<std::tuple<std::string_view, Step, Transition, Moment>, Point> points;
};

class Explorer {
 public:
  static constexpr int kNoBound = 1 << 20;

  Explorer();
  Explorer(const Explorer&) = delete;
  Explorer& operator=(const Explorer&) = delete;
  ~Explorer();

  struct Result {
    std::uint64_t runs = 0;
    std::uint64_t steps = 0;
    std::string failure;  // with the schedule that led to it
  };
  // All schedules with at most so many preemptions and deaths.
  [[nodiscard]] Result Explore(const Scenario& scenario, int preemptions, int deaths,
                               Coverage* coverage = nullptr);

 private:
  friend class Player;
  struct Choice {
    int chosen;
    int options;
  };
  struct Fiber;
  enum class Why : std::uint8_t { kEnded, kDied, kSwitched, kFailed };

  static void OnPause(const Pause& pause);
  static void Body();

  void Run();
  void AtPause(const Pause& pause);
  void Judge();
  [[nodiscard]] int Choose(int options);
  [[nodiscard]] bool Advance();
  [[nodiscard]] std::vector<std::size_t> Enabled() const;
  void Resume(std::size_t actor);
  void Leave(Why why);
  void Fail(std::string what);
  [[nodiscard]] std::string Trace() const;

  const Scenario* scenario_ = nullptr;
  Coverage* coverage_ = nullptr;
  int most_preemptions_ = 0;
  int most_deaths_ = 0;
  std::vector<Choice> path_;
  std::size_t depth_ = 0;

  std::unique_ptr<World> world_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::unique_ptr<Fiber> main_;
  std::size_t current_ = 0;
  std::size_t next_ = 0;
  Why why_ = Why::kEnded;
  bool running_ = false;
  int preemptions_ = 0;
  int deaths_ = 0;
  std::uint64_t steps_ = 0;
  std::string failure_;
  struct Event {
    std::size_t actor;
    Pause pause;
    bool dies;
  };
  std::vector<Event> events_;
};

}  // namespace ucmstore::test
