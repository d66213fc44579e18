#include "lib/scheduler/ideals.h"

#include <algorithm>
#include <map>
#include <utility>

namespace fusionllm::scheduler {
namespace {

constexpr int kWordBits = 64;

bool Has(const std::vector<uint64_t>& ops, int position) { return (ops[position / kWordBits] >> (position % kWordBits) & 1) != 0; }
void Add(std::vector<uint64_t>& ops, int position) { ops[position / kWordBits] |= uint64_t{1} << (position % kWordBits); }

class Enumeration {
 public:
  explicit Enumeration(const Problem& problem)
      : problem_(problem), inputs_(problem.positions()), made_(problem.positions()), read_(problem.positions()) {
    for (size_t v = 0; v < problem.values().size(); ++v) {
      const ChainValue& value = problem.values()[v];
      if (!value.consumers.empty()) made_[value.producer].push_back(static_cast<int>(v));
      for (const int consumer : value.consumers) {
        read_[consumer].push_back(static_cast<int>(v));
        inputs_[consumer].push_back(value.producer);
      }
    }
    for (int p = problem.first_cut(); p < problem.positions(); ++p) {
      if (inputs_[p].empty()) inputs_[p].push_back(p - 1);
    }
  }

  std::optional<std::vector<Ideal>> All(size_t max) {
    const int placeholders = problem_.first_cut() - 1;
    Ideal first{.ops = std::vector<uint64_t>(problem_.positions() / kWordBits + 1, 0)};
    for (int p = 0; p < placeholders; ++p) AddTo(first, p);
    std::vector<Ideal> ideals = {std::move(first)};
    for (size_t begin = 0, end = 1; begin < end; begin = end, end = ideals.size()) {
      std::map<std::vector<uint64_t>, size_t> known;  // of those with one op more
      for (size_t i = begin; i < end; ++i) {
        for (const int p : ReadyIn(ideals[i])) {
          std::vector<uint64_t> ops = ideals[i].ops;
          Add(ops, p);
          if (!known.try_emplace(std::move(ops), ideals.size()).second) continue;
          if (ideals.size() >= max) return std::nullopt;
          Ideal larger = ideals[i];
          larger.parent = static_cast<int>(i);
          larger.added = p;
          AddTo(larger, p);
          ideals.push_back(std::move(larger));
        }
      }
    }
    return ideals;
  }

 private:
  std::vector<int> ReadyIn(const Ideal& ideal) const {
    std::vector<int> ready;
    for (int p = problem_.first_cut() - 1; p < problem_.positions(); ++p) {
      if (Has(ideal.ops, p)) continue;
      if (std::all_of(inputs_[p].begin(), inputs_[p].end(), [&](int input) { return Has(ideal.ops, input); })) ready.push_back(p);
    }
    return ready;
  }

  void AddTo(Ideal& ideal, int p) const {
    Add(ideal.ops, p);
    ++ideal.count;
    for (const int v : made_[p]) Count(problem_.values()[v], 1, ideal.bytes);
    for (const int v : read_[p]) {
      const std::vector<int>& consumers = problem_.values()[v].consumers;
      if (std::all_of(consumers.begin(), consumers.end(), [&](int consumer) { return Has(ideal.ops, consumer); })) {
        Count(problem_.values()[v], -1, ideal.bytes);
      }
    }
  }

  static void Count(const ChainValue& value, int64_t sign, CutTraffic& bytes) {
    (value.differentiable && !value.lossless_only ? bytes.lossy : bytes.lossless) += sign * value.wire_bytes;
    if (value.differentiable) bytes.gradient += sign * value.bytes;
  }

  const Problem& problem_;
  std::vector<std::vector<int>> inputs_;       // by position
  std::vector<std::vector<int>> made_, read_;  // values, by position
};

}  // namespace

std::optional<std::vector<Ideal>> IdealsOf(const Problem& problem, size_t max) { return Enumeration(problem).All(max); }

bool Holds(const Ideal& ideal, int position) { return Has(ideal.ops, position); }

bool Holds(const Ideal& larger, const Ideal& smaller) {
  for (size_t w = 0; w < larger.ops.size(); ++w) {
    if ((smaller.ops[w] & ~larger.ops[w]) != 0) return false;
  }
  return true;
}

}  // namespace fusionllm::scheduler
