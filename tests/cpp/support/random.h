// SPDX-License-Identifier: Apache-2.0
//
// Random: a seeded source for random tests. The seed is UCMSTORE_TEST_SEED if set, else fresh; it
// is printed, so that a failure can be run again. Not synchronised: one per thread, made by Fork.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>

namespace ucmstore::test {

class Random {
 public:
  Random() : Random(SeedFromEnvironment()) {
    std::cout << "[ seed     ] UCMSTORE_TEST_SEED=" << seed_ << "\n";
  }
  explicit Random(std::uint64_t seed) : seed_(seed), engine_(seed) {}

  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  // Uniform in [low, high].
  [[nodiscard]] std::uint64_t Between(std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(engine_);
  }
  [[nodiscard]] bool OneIn(std::uint64_t n) { return Between(1, n) == 1; }
  [[nodiscard]] Random Fork() { return Random(engine_()); }
  [[nodiscard]] std::mt19937_64& engine() { return engine_; }  // for std::shuffle

 private:
  static std::uint64_t SeedFromEnvironment() {
    if (const char* text = std::getenv("UCMSTORE_TEST_SEED")) {
      return std::strtoull(text, nullptr, 0);
    }
    std::random_device device;
    return device();
  }

  std::uint64_t seed_;
  std::mt19937_64 engine_;
};

}  // namespace ucmstore::test
