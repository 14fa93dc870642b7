// SPDX-License-Identifier: Apache-2.0
//
// Why the ring's memory orders are what they are, in a small machine that forgives less than x86.
//
// Each actor has a buffer of its own stores; memory takes them over whenever it likes:
//  - a relaxed store may overtake all others of its actor but those to the same variable;
//  - a release store, or a stronger one, waits for all that were made before it;
//  - a load sees the actor's own buffered store, else memory; a sequentially consistent load waits
//    until no sequentially consistent store of its actor is left in the buffer;
//  - a compare-and-swap reads from memory, keeps others from swapping that variable until its
//    store has arrived, and waits for the actor's own stores to it. Its store waits in the buffer
//    as any other: that is what a load-exclusive/store-exclusive pair does on Arm.
// Loads are never early, which stands for acquire. All behaviours of a program are gone through.
//
// The programs are the ring's protocols, reduced to their accesses. Each is run with the order that
// ring.cc uses, under which nothing bad may happen, and with a weaker one, under which it must: so
// the order is needed, and the machine is able to show it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace ucmstore::test {
namespace {

enum class Order : std::uint8_t { kRelaxed, kAcqRel, kSeqCst };

struct Op {
  enum class Kind : std::uint8_t { kStore, kLoad, kSwap, kSkipUnless, kEnd } kind;
  int variable = 0;  // of kSkipUnless: the register
  int value = 0;     // stored; or what the register must be
  int expected = 0;  // of kSwap
  int reg = 0;       // kLoad: gets the value; kSwap: gets 1 if it was done; kSkipUnless: how many
  Order order = Order::kSeqCst;
};

Op Store(int variable, int value, Order order) {
  return {.kind = Op::Kind::kStore, .variable = variable, .value = value, .order = order};
}
Op Load(int reg, int variable, Order order) {
  return {.kind = Op::Kind::kLoad, .variable = variable, .reg = reg, .order = order};
}
// reg = whether it was done
Op Swap(int reg, int variable, int expected, int value, Order order) {
  return {.kind = Op::Kind::kSwap,
          .variable = variable,
          .value = value,
          .expected = expected,
          .reg = reg,
          .order = order};
}
// Goes on here if the register has that value, else leaves out the next `count`.
Op SkipUnless(int reg, int value, int count) {
  return {.kind = Op::Kind::kSkipUnless, .variable = reg, .value = value, .reg = count};
}

using Program = std::vector<Op>;
constexpr std::size_t kVariables = 6;
constexpr std::size_t kRegisters = 4;

struct Buffered {
  int variable;
  int value;
  Order order;
  bool swap;
  auto operator<=>(const Buffered&) const = default;
};
struct Thread {
  std::size_t next = 0;
  std::array<int, kRegisters> registers{};
  std::vector<Buffered> buffer;
  auto operator<=>(const Thread&) const = default;
};
struct Machine {
  std::array<int, kVariables> memory{};
  std::vector<Thread> threads;
  auto operator<=>(const Machine&) const = default;
};

class Search {
 public:
  using Bad = std::function<bool(const Machine&)>;
  Search(std::vector<Program> programs, Bad bad)
      : programs_(std::move(programs)), bad_(std::move(bad)) {}

  // True: some behaviour ends badly.
  bool Run(Machine start) {
    start.threads.resize(programs_.size());
    Visit(start);
    return found_;
  }
  [[nodiscard]] std::size_t states() const { return seen_.size(); }

 private:
  void Visit(const Machine& machine) {
    if (found_ || !seen_.insert(machine).second) return;
    bool ended = true;
    for (std::size_t i = 0; i < machine.threads.size(); ++i) {
      const Thread& thread = machine.threads[i];
      for (std::size_t at = 0; at < thread.buffer.size(); ++at) {
        ended = false;
        if (MayArrive(thread, at)) Arrive(machine, i, at);
      }
      if (thread.next < programs_[i].size()) {
        ended = false;
        Step(machine, i);
      }
    }
    if (ended && bad_(machine)) found_ = true;
  }

  static bool MayArrive(const Thread& thread, std::size_t at) {
    const Buffered& store = thread.buffer[at];
    if (store.order != Order::kRelaxed) return at == 0;
    return std::none_of(thread.buffer.begin(), thread.buffer.begin() + static_cast<long>(at),
                        [&](const Buffered& other) { return other.variable == store.variable; });
  }

  void Arrive(Machine machine, std::size_t i, std::size_t at) {
    auto& buffer = machine.threads[i].buffer;
    machine.memory[static_cast<std::size_t>(buffer[at].variable)] = buffer[at].value;
    buffer.erase(buffer.begin() + static_cast<long>(at));
    Visit(machine);
  }

  void Step(Machine machine, std::size_t i) {
    Thread& me = machine.threads[i];
    const Op& op = programs_[i][me.next++];
    const auto variable = static_cast<std::size_t>(op.variable);
    const auto reg = static_cast<std::size_t>(op.reg);
    const auto own = std::find_if(me.buffer.rbegin(), me.buffer.rend(),
                                  [&](const Buffered& s) { return s.variable == op.variable; });
    switch (op.kind) {
      case Op::Kind::kStore:
        me.buffer.push_back(
            {.variable = op.variable, .value = op.value, .order = op.order, .swap = false});
        break;
      case Op::Kind::kLoad:
        if (op.order == Order::kSeqCst && std::ranges::any_of(me.buffer, [](const Buffered& s) {
              return s.order == Order::kSeqCst;
            })) {
          return;
        }
        me.registers[reg] = own != me.buffer.rend() ? own->value : machine.memory[variable];
        break;
      case Op::Kind::kSwap: {
        const bool taken = std::ranges::any_of(machine.threads, [&](const Thread& thread) {
          return std::ranges::any_of(thread.buffer, [&](const Buffered& s) {
            return s.swap && s.variable == op.variable;
          });
        });
        if (taken || own != me.buffer.rend()) return;
        me.registers[reg] = machine.memory[variable] == op.expected ? 1 : 0;
        if (me.registers[reg] == 1) {
          me.buffer.push_back(
              {.variable = op.variable, .value = op.value, .order = op.order, .swap = true});
        }
        break;
      }
      case Op::Kind::kSkipUnless:
        if (me.registers[variable] != op.value) me.next += static_cast<std::size_t>(op.reg);
        break;
      case Op::Kind::kEnd: me.next = programs_[i].size(); break;
    }
    Visit(machine);
  }

  std::vector<Program> programs_;
  Bad bad_;
  std::set<Machine> seen_;
  bool found_ = false;
};

constexpr Op kEnd{.kind = Op::Kind::kEnd};

// ---- pin and evict ------------------------------------------------------------------------------

enum { kWord, kPins, kId };
enum { kIdle = 0, kDraining = 1, kNextLife = 2 };

// Orders of: setting the bit, reading the word; draining, reading the pins.
bool PinAgainstEvict(Order set_bit, Order read_word, Order drain, Order read_pins) {
  const Program reader = {Swap(0, kPins, 0, 1, set_bit), Load(1, kWord, read_word),
                          SkipUnless(1, kDraining, 1),
                          Swap(2, kWord, kDraining, kIdle, Order::kSeqCst)};
  const Program evictor = {Swap(0, kWord, kIdle, kDraining, drain), Load(1, kPins, read_pins),
                           SkipUnless(1, 0, 1),
                           Swap(2, kWord, kDraining, kNextLife, Order::kSeqCst)};
  return Search({reader, evictor},
                [](const Machine& machine) {
                  const auto& read = machine.threads[0].registers;
                  const bool holds = read[1] == kIdle || (read[1] == kDraining && read[2] == 1);
                  return holds && machine.threads[1].registers[2] == 1;
                })
      .Run({});
}

TEST(RingMemoryOrder, PinAndEvictSeeEachOther) {
  using enum Order;
  EXPECT_FALSE(PinAgainstEvict(kSeqCst, kSeqCst, kSeqCst, kSeqCst));
  EXPECT_TRUE(PinAgainstEvict(kAcqRel, kAcqRel, kAcqRel, kAcqRel));
  EXPECT_TRUE(PinAgainstEvict(kRelaxed, kRelaxed, kRelaxed, kRelaxed));
}

TEST(RingMemoryOrder, PinAndEvictNeedAllFour) {
  using enum Order;
  EXPECT_TRUE(PinAgainstEvict(kAcqRel, kSeqCst, kSeqCst, kSeqCst));
  EXPECT_TRUE(PinAgainstEvict(kSeqCst, kAcqRel, kSeqCst, kSeqCst));
  EXPECT_TRUE(PinAgainstEvict(kSeqCst, kSeqCst, kAcqRel, kSeqCst));
  EXPECT_TRUE(PinAgainstEvict(kSeqCst, kSeqCst, kSeqCst, kAcqRel));
}

// ---- propose and decide -------------------------------------------------------------------------

// Variables 0 and 1: the two slots' words; 2 and 3: their hints.
enum { kNothing = 0, kProposed = 1, kDecided = 2, kBeaten = 3 };

Program Claimer(int me, Order insert, Order scan) {
  const int other = 1 - me;
  return {
      Swap(0, me, kNothing, kProposed, Order::kSeqCst),
      Swap(0, 2 + me, 0, 1, insert),
      Load(1, 2 + other, scan),
      SkipUnless(1, 1, 7),  // no hint: decide
      Load(2, other, Order::kSeqCst),
      SkipUnless(2, kDecided, 1),
      kEnd,  // the other one has it
      SkipUnless(2, kProposed, 3),
      Swap(3, other, kProposed, kBeaten, Order::kSeqCst),
      SkipUnless(3, 0, 1),
      kEnd,  // it was decided, or beaten us, meanwhile
      Swap(0, me, kProposed, kDecided, Order::kSeqCst),
  };
}

bool ProposeAgainstPropose(Order insert, Order scan) {
  return Search({Claimer(0, insert, scan), Claimer(1, insert, scan)},
                [](const Machine& machine) {
                  return machine.memory[0] == kDecided && machine.memory[1] == kDecided;
                })
      .Run({});
}

TEST(RingMemoryOrder, OfTwoClaimersTheSecondSeesTheFirst) {
  using enum Order;
  EXPECT_FALSE(ProposeAgainstPropose(kSeqCst, kSeqCst));
  EXPECT_TRUE(ProposeAgainstPropose(kSeqCst, kAcqRel));
  EXPECT_TRUE(ProposeAgainstPropose(kAcqRel, kSeqCst));
  EXPECT_TRUE(ProposeAgainstPropose(kRelaxed, kRelaxed));
}

// ---- the last two landings, and a watcher -------------------------------------------------------

// Each makes its own store and then looks for the other's: of two, one sees both. So it is with
// the last two shards of a block, and with the event's number against the watchers' bits.
bool NeitherSeesTheOther(Order store, Order load) {
  const Program one = {Store(0, 1, store), Load(0, 1, load)};
  const Program other = {Store(1, 1, store), Load(0, 0, load)};
  return Search({one, other},
                [](const Machine& machine) {
                  return machine.threads[0].registers[0] == 0 &&
                         machine.threads[1].registers[0] == 0;
                })
      .Run({});
}

TEST(RingMemoryOrder, OfTwoLandingsOneSeesBoth) {
  EXPECT_FALSE(NeitherSeesTheOther(Order::kSeqCst, Order::kSeqCst));
  EXPECT_TRUE(NeitherSeesTheOther(Order::kAcqRel, Order::kAcqRel));
  EXPECT_TRUE(NeitherSeesTheOther(Order::kRelaxed, Order::kRelaxed));
}

// ---- an id and its generation -------------------------------------------------------------------

// The new life's id must not be seen in the old life. That its word was swapped before is not
// enough: on Arm a plain store may overtake the store of a swap.
bool NewIdInOldLife(Order store_id) {
  const Program claimer = {Swap(0, kWord, 0, 1, Order::kSeqCst), SkipUnless(0, 1, 1),
                           Store(kId, 1, store_id)};
  const Program reader = {Load(0, kWord, Order::kSeqCst), Load(1, kId, Order::kSeqCst),
                          Load(2, kWord, Order::kSeqCst)};
  return Search({claimer, reader},
                [](const Machine& machine) {
                  const auto& read = machine.threads[1].registers;
                  return read[0] == 0 && read[1] == 1 && read[2] == 0;
                })
      .Run({});
}

TEST(RingMemoryOrder, AnIdIsNotSeenBeforeItsLifeHasBegun) {
  EXPECT_FALSE(NewIdInOldLife(Order::kAcqRel));
  EXPECT_TRUE(NewIdInOldLife(Order::kRelaxed));
}

}  // namespace
}  // namespace ucmstore::test
