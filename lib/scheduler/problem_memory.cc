// What stages take of memory, and what they take at least.
#include <algorithm>
#include <bit>
#include <set>
#include <utility>
#include <vector>

#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler {
namespace {

// Tables of the maxima of ranges of 1, 2, 4, .. elements.
std::vector<std::vector<int64_t>> RangeMaxima(std::vector<int64_t> elements) {
  std::vector<std::vector<int64_t>> tables = {std::move(elements)};
  const size_t n = tables[0].size();
  for (size_t width = 1; 2 * width <= n; width *= 2) {
    const std::vector<int64_t>& half = tables.back();
    std::vector<int64_t> whole(n - 2 * width + 1);
    for (size_t i = 0; i < whole.size(); ++i) whole[i] = std::max(half[i], half[i + width]);
    tables.push_back(std::move(whole));
  }
  return tables;
}

int64_t LargestOf(const std::vector<std::vector<int64_t>>& maxima, int begin, int end) {
  if (begin >= end) return 0;
  const int level = std::max(0, static_cast<int>(std::bit_width(static_cast<unsigned>(end - begin))) - 1);
  return std::max(maxima[level][begin], maxima[level][end - (1 << level)]);
}

}  // namespace

int64_t Problem::StaticBytes(int begin, int end) const {
  int64_t bytes = static_[end] - static_[begin];
  for (size_t t = 0; t < tied_.size(); ++t) {
    const auto first = std::lower_bound(tied_[t].begin(), tied_[t].end(), begin);
    const auto last = std::lower_bound(first, tied_[t].end(), end);
    const int64_t repeated = std::max<int64_t>(0, last - first - 1);
    bytes -= repeated * (request_->tied[t].bytes + request_->tied[t].optimizer_bytes);
  }
  return bytes;
}

int64_t Problem::KeptBound(int begin, int end) const { return stash_[end] - stash_[begin] + (begin > 0 ? stash_alive_[begin] : 0); }

int64_t Problem::StashBound(int begin, int end) const {
  if (!request_->recompute) return KeptBound(begin, end);
  // Of what is alive at its begin the stage may read nothing again if it ends before the last that does so next.
  return kept_first_[end] - kept_first_[begin] + (again_furthest_[begin] < end ? again_alive_[begin] : 0);
}

int64_t Problem::ScratchBound(int begin, int end) const {
  return WorkspaceBytes(begin, end) + (request_->recompute ? LargestBlockBound(begin, end) : 0);
}

int64_t Problem::WorkspaceBytes(int begin, int end) const { return LargestOf(workspace_max_, begin, end); }

void Problem::BuildWorkspace() {
  std::vector<int64_t> workspace;
  for (const int op : order_) workspace.push_back(request_->ops[op].workspace_bytes);
  workspace_max_ = RangeMaxima(std::move(workspace));
}

void Problem::AddReaders(const ValueNode& value, ChainValue& chain) const {
  chain.block = request_->ops[value.producer].block;
  chain.kept_between_blocks = request_->ops[value.producer].placeholder;
  std::set<int> again(chain.kept_by.begin(), chain.kept_by.end());
  for (const std::vector<int>* readers : {&chain.consumers, &chain.kept_by}) {
    for (const int position : *readers) {
      const OpNode& op = request_->ops[order_[position]];
      chain.kept_between_blocks |= op.block != chain.block;
      if (op.runs_again) again.insert(position);
    }
  }
  chain.read_again_by.assign(again.begin(), again.end());
}

void Problem::AddRecomputed(const ChainValue& value) {
  const std::vector<int>& again = value.read_again_by;
  if (again.empty()) return;
  if (value.kept_between_blocks) kept_first_[again.front() + 1] += value.bytes;
  // What stays inside its block is stashed only where it was received.
  int before = value.kept_between_blocks ? again.front() : value.producer;
  for (const int reader : again) {
    if (reader <= before) continue;  // its own producer's backward part
    again_alive_[before + 1] += value.bytes;
    again_alive_[reader + 1] -= value.bytes;
    again_furthest_[before + 1] = std::max(again_furthest_[before + 1], reader);
    before = reader;
  }
  if (value.kept_between_blocks || value.kept_by.empty()) return;
  const int first = value.kept_by.front();
  if (run_of_[first] != run_of_[value.producer]) return;  // of a block that the order takes apart
  inside_[first + 1] += value.bytes;
  inside_alive_[value.producer + 1] += value.bytes;
  inside_alive_[first + 1] -= value.bytes;
}

void Problem::BuildBlocks() {
  const int n = positions();
  run_of_.assign(n, 0);
  run_begin_ = {0};
  for (int p = 1; p < n; ++p) {
    if (request_->ops[order_[p]].block != request_->ops[order_[p - 1]].block) run_begin_.push_back(p);
    run_of_[p] = static_cast<int>(run_begin_.size()) - 1;
  }
  run_begin_.push_back(n);
  for (std::vector<int64_t>* table : {&kept_first_, &again_alive_, &inside_, &inside_alive_}) table->assign(n + 2, 0);
  again_furthest_.assign(n + 2, 0);
  for (const ChainValue& value : values_) AddRecomputed(value);
  for (int p = 1; p < n + 2; ++p) {
    for (std::vector<int64_t>* table : {&kept_first_, &again_alive_, &inside_, &inside_alive_}) (*table)[p] += (*table)[p - 1];
    // Ranges end where they are read: whichever reaches this far is still open.
    again_furthest_[p] = std::max(again_furthest_[p], again_furthest_[p - 1]);
  }
  for (const OpNode& op : request_->ops) blocks_ = std::max(blocks_, op.block + 1);
  std::vector<int64_t> whole;
  for (size_t run = 0; run + 1 < run_begin_.size(); ++run) whole.push_back(RunBytes(run_begin_[run], run_begin_[run + 1]));
  run_max_ = RangeMaxima(std::move(whole));
}

// Of [begin, end) in one run.
int64_t Problem::RunBytes(int begin, int end) const { return std::max<int64_t>(0, inside_[end] - inside_[begin] - inside_alive_[begin]); }

int64_t Problem::LargestBlockBound(int begin, int end) const {
  if (begin >= end) return 0;
  const int first = run_of_[begin], last = run_of_[end - 1];
  if (first == last) return RunBytes(begin, end);
  return std::max({RunBytes(begin, run_begin_[first + 1]), LargestOf(run_max_, first + 1, last), RunBytes(run_begin_[last], end)});
}

}  // namespace fusionllm::scheduler
