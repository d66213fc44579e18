// A sequence of random numbers that is the same on every machine: std::mt19937_64 is fixed by the standard, its distributions are not.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace fusionllm::scheduler::grid {

class Rng {
 public:
  explicit Rng(uint64_t seed) : generator_(seed) {}
  uint64_t Bits() { return generator_(); }
  int Below(int bound) { return static_cast<int>(generator_() % static_cast<uint64_t>(bound)); }
  double Uniform() { return static_cast<double>(generator_() >> 11) * 0x1p-53; }  // [0, 1)
  template <typename T>
  void Shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[Below(static_cast<int>(i))]);
  }

 private:
  std::mt19937_64 generator_;
};

}  // namespace fusionllm::scheduler::grid
