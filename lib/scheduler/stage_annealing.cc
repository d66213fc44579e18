#include "lib/scheduler/stage_annealing.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fusionllm::scheduler {
namespace {

// Temperatures as shares of the cost at the start.
constexpr double kHottest = 1e-3;
constexpr double kColdest = 1e-5;
constexpr int kSteps[] = {1, 1, 2, 3, 4, 8, 8, 16};
constexpr double kLimitRounding = 1e-9;
constexpr int kLongestRun = 8;         // parts rearranged together
constexpr int64_t kStagesOfAStep = 8;  // that are gone over in the time that one is laid again

}  // namespace

StageAnnealing::StageAnnealing(const Problem& problem, std::vector<int> choice)
    : problem_(problem),
      form_(problem),
      choice_(std::move(choice)),
      micro_batches_(problem.request().micro_batches),
      used_(problem.request().devices.size()),
      load_s_(problem.request().resources.size()) {
  const PlanRequest& request = problem.request();
  const int n = problem.positions();
  for (const int device : choice_) {
    const auto cost_class = static_cast<size_t>(request.devices[device].cost_class);
    forward_.resize(std::max(forward_.size(), cost_class + 1));
    backward_.resize(forward_.size());
    both_.resize(forward_.size());
    memory_matters_ = memory_matters_ || form_.NeededBytes(0, n, device, request.micro_batches) > problem.UsableMemory(device);
    if (!forward_[cost_class].empty()) continue;
    const double scale = request.devices[device].time_scale;
    for (int p = 0; p <= n; ++p) {
      forward_[cost_class].push_back(problem.ForwardSeconds(0, p, device) / scale);
      backward_[cost_class].push_back(problem.BackwardSeconds(0, p, device) / scale);
      both_[cost_class].push_back(forward_[cost_class].back() + backward_[cost_class].back());
    }
  }
  const auto alive = [&](int p) { return problem.LossyBytesAt(p) + problem.LosslessBytesAt(p); };
  for (int p = 0; p <= n; ++p) {
    const auto lossy = static_cast<double>(problem.LossyBytesAt(p)), lossless = static_cast<double>(problem.LosslessBytesAt(p)),
               gradient = static_cast<double>(problem.GradientBytesAt(p));
    dense_bytes_.push_back(lossy + lossless);
    min_bytes_.push_back(lossy / problem.max_ratio() + lossless);
    gradient_bytes_.push_back(gradient);
    min_gradient_bytes_.push_back(gradient / problem.max_ratio());
  }
  std::vector<int> cheap;
  for (int p = problem.first_cut(); p < n; ++p) {
    if ((p == problem.first_cut() || alive(p) <= alive(p - 1)) && (p + 1 == n || alive(p) <= alive(p + 1))) cheap.push_back(p);
  }
  for (int p = 0; p <= n; ++p) {
    const auto after = std::lower_bound(cheap.begin(), cheap.end(), p);
    cheap_.push_back(after == cheap.end() ? (cheap.empty() ? p : cheap.back()) : *after);
    if (after != cheap.begin() && p - *(after - 1) < std::abs(cheap_[p] - p)) cheap_[p] = *(after - 1);
  }
}

void StageAnnealing::SetPart(Part& part, int begin, int end, int device) const {
  const double forward_s = Seconds(forward_, begin, end, device), backward_s = Seconds(backward_, begin, end, device);
  part.device = device;
  part.begin = begin;
  part.end = end;
  part.stage_s = forward_s + backward_s;
  part.longer_s = std::max(forward_s, backward_s);
}

StageAnnealing::Crossing StageAnnealing::CrossingOf(int cut, int src, int dst) const {
  Crossing crossing{.cut = cut, .src = src, .dst = dst};
  // No message needs to be shorter than what fits into the target once for each micro-batch.
  const double enough_s = target_s_ / micro_batches_;
  const auto message_s = [&](int from, int to, double dense_bytes, double min_bytes) -> double {
    if (dense_bytes == 0) return 0;
    const DirectedLink link = problem_.link(from, to);
    if (link.bytes_per_s <= 0) {
      crossing.possible = false;
      return 0;
    }
    crossing.latency_s += link.latency_s;
    const double dense_s = dense_bytes / link.bytes_per_s;
    return dense_s <= enough_s ? dense_s : std::min(dense_s, std::max(enough_s, min_bytes / link.bytes_per_s));
  };
  crossing.there_s = message_s(src, dst, dense_bytes_[cut], min_bytes_[cut]);
  crossing.back_s = message_s(dst, src, gradient_bytes_[cut], min_gradient_bytes_[cut]);
  return crossing;
}

// `whole_s`: the way to the last stage and back.
void StageAnnealing::ExtendPrefix(Prefix& prefix, double whole_s, const Crossing& before, const Part& part) const {
  const double slower_s = SlowerOf(before), others = micro_batches_ - 1;
  prefix.path_s += before.latency_s + before.there_s + before.back_s;
  prefix.longest_s = std::max({prefix.longest_s, slower_s, part.longer_s});
  const double behind_s = share_ * (whole_s - prefix.path_s);
  const double transfer_s = prefix.path_s + behind_s + others * slower_s;
  const double stage_s = prefix.path_s + behind_s + (micro_batches_ - share_) * part.stage_s;
  prefix.excess_s += Excess(transfer_s) + Excess(stage_s);
  prefix.path_s += part.stage_s;
}

// What a step takes about longer when the last backward of the first stage is done: that its gradients of shared parameters come to the
// other stages that use these. Theirs come to it at the same time.
template <class PartAt>
double StageAnnealing::ExchangeSeconds(size_t count, const PartAt& at) const {
  const PlanRequest& request = problem_.request();
  double longest_s = 0;
  if (!request.coordinates_steps || count < 2) return longest_s;
  for (size_t t = 0; t < problem_.tied().size(); ++t) {
    const std::vector<int>& uses = problem_.tied()[t];
    if (uses.front() >= at(0).end) continue;
    for (size_t s = 1; s < count; ++s) {
      const Part& part = at(s);
      const auto use = std::lower_bound(uses.begin(), uses.end(), part.begin);
      if (use == uses.end()) break;
      if (*use >= part.end) continue;
      const DirectedLink there = problem_.link(at(0).device, part.device);
      if (there.bytes_per_s <= 0) continue;
      longest_s = std::max(longest_s, CrossingSeconds(request.tied[t].MinBytes(), there.bytes_per_s, there.latency_s));
    }
  }
  return longest_s;
}

double StageAnnealing::ExchangeOfParts() const {
  return ExchangeSeconds(parts_.size(), [this](size_t s) -> const Part& { return parts_[s]; });
}

double StageAnnealing::EndOf(const Prefix& prefix) const {
  return target_s_ + prefix.excess_s + Excess(prefix.path_s + (micro_batches_ - 1) * prefix.longest_s);
}

void StageAnnealing::AddLoad(int src, int dst, double seconds, int sign) {
  if (seconds <= 0) return;
  const DirectedLink link = problem_.link(src, dst);
  problem_.links().ForEachResource(src, dst, link, [&](int r) {
    load_excess_s_ -= Excess(micro_batches_ * load_s_[r]);
    load_s_[r] += sign * seconds * link.bytes_per_s / problem_.request().resources[r].bytes_per_s;
    load_excess_s_ += Excess(micro_batches_ * load_s_[r]);
  });
}

void StageAnnealing::AddLoad(const Crossing& crossing, int sign) {
  AddLoad(crossing.src, crossing.dst, crossing.there_s, sign);
  AddLoad(crossing.dst, crossing.src, crossing.back_s, sign);
}

void StageAnnealing::Start(const Assignment& start) {
  parts_.clear();
  target_s_ = 0;
  for (size_t s = 0; s < start.devices.size(); ++s) {
    const int end = s + 1 < start.begins.size() ? start.begins[s + 1] : problem_.positions();
    SetPart(parts_.emplace_back(), start.begins[s], end, start.devices[s]);
    if (s > 0) parts_[s].before = CrossingOf(start.begins[s], start.devices[s - 1], start.devices[s]);
  }
  Total();
  // A target that is hard to meet: then everything late counts at first, which shakes off the start.
  target_s_ = prefixes_.back().path_s + (micro_batches_ - 1) * prefixes_.back().longest_s;
  Total();
  exchange_s_ = ExchangeOfParts();
  FindUnused();
}

void StageAnnealing::FindUnused() {
  for (const Part& part : parts_) used_[part.device] = 1;
  unused_.clear();
  for (const int device : choice_) {
    if (!used_[device]) unused_.push_back(device);
  }
  for (const Part& part : parts_) used_[part.device] = 0;
}

void StageAnnealing::Total() {
  load_excess_s_ = 0;
  std::fill(load_s_.begin(), load_s_.end(), 0);
  for (Part& part : parts_) {
    if (part.before.src >= 0) part.before = CrossingOf(part.before.cut, part.before.src, part.before.dst);
    AddLoad(part.before, 1);
  }
  ComputePrefixes();
}

double StageAnnealing::PathSeconds(const Crossing& before, const Part& part) {
  return before.latency_s + before.there_s + before.back_s + part.stage_s;
}

void StageAnnealing::ComputePrefixes() {
  whole_s_ = 0;
  for (const Part& part : parts_) whole_s_ += PathSeconds(part.before, part);
  const size_t count = parts_.size();
  prefixes_.resize(count + 1);
  bases_.resize(count);
  longest_behind_s_.assign(count + 1, 0);
  for (size_t s = 0; s < count; ++s) {
    const Part& part = parts_[s];
    prefixes_[s + 1] = prefixes_[s];
    ExtendPrefix(prefixes_[s + 1], whole_s_, part.before, part);
    const double path_s = (1 - share_) * (prefixes_[s + 1].path_s - part.stage_s);
    bases_[s] = {path_s + (micro_batches_ - 1) * SlowerOf(part.before), path_s + (micro_batches_ - share_) * part.stage_s};
  }
  for (size_t s = count; s-- > 0;) {
    longest_behind_s_[s] = std::max({longest_behind_s_[s + 1], SlowerOf(parts_[s].before), parts_[s].longer_s});
  }
}

// What GoOn finds late of parts that stay as they are, when the whole way and that before them change.
double StageAnnealing::ExcessOf(int first, int last, double shift_s) const {
  double excess_s = 0;
  for (int s = first; s < last; ++s) excess_s += std::max(0.0, bases_[s].transfer_s + shift_s) + std::max(0.0, bases_[s].stage_s + shift_s);
  return excess_s;
}

bool StageAnnealing::Fits(const Part& part, int in_flight) const {
  if (!problem_.Allowed(part.begin, part.end, part.device)) return false;
  if (!memory_matters_) return true;
  const PlanRequest& request = problem_.request();
  in_flight = std::clamp(in_flight, request.schedule.MinInFlight(request.micro_batches),
                         request.schedule.MaxInFlight(request.micro_batches, request.max_in_flight));
  return form_.NeededBytes(part.begin, part.end, part.device, in_flight) <= problem_.UsableMemory(part.device);
}

// The largest end up to `last` with which the device, so far along the way, is not late; at least one op.
int StageAnnealing::Furthest(int begin, int last, int device, double path_s) const {
  const Device& d = problem_.request().devices[device];
  const double* const both_s = both_[d.cost_class].data();
  const double room_s = (target_s_ - path_s - share_ * (whole_s_ - path_s)) / (micro_batches_ - share_) / d.time_scale;
  const double max_s = both_s[begin] + room_s * (1 + 1e-12);
  // The last that is not beyond `max_s`, in steps without a branch to mispredict.
  int low = begin + 1;
  for (int left = last - low; left > 0;) {
    const int half = (left + 1) / 2;
    low += both_s[low + half] <= max_s ? half : 0;
    left -= half;
  }
  return low;
}

void StageAnnealing::StartDraft(int first, int last) {
  first_ = first;
  last_ = last;
  draft_.clear();
}

// Lays the drafted devices over what the replaced parts had; with `refill` each as far as the target lets it, otherwise by their lengths.
// Devices that nothing is left for go. False also where what is laid is later than `limit` already, wherever the rest comes to lie.
bool StageAnnealing::Rebuild(bool refill, double limit) {
  rebuilt_.resize(draft_.size());
  size_t laid = 0;
  const double max_excess_s = (limit - target_s_) * (1 + kLimitRounding);
  const double ahead_s = last_ < static_cast<int>(parts_.size()) ? whole_s_ - prefixes_[last_ + 1].path_s + parts_[last_].stage_s : 0;
  const int end = parts_[last_ - 1].end;
  int at = parts_[first_].begin, before_device = first_ > 0 ? parts_[first_ - 1].device : -1;
  double path_s = prefixes_[first_].path_s, excess_s = 0;
  for (; laid < draft_.size() && at < end; ++laid) {
    const auto [device, length] = draft_[laid];
    Part& part = rebuilt_[laid];
    if (before_device >= 0) {
      part.before = CrossingOf(at, before_device, device);
      if (!part.before.possible) return false;
      path_s += part.before.latency_s + part.before.there_s + part.before.back_s;
    } else {
      part.before = {};
    }
    int to = end;
    if (laid + 1 < draft_.size()) {
      to = refill ? Furthest(at, end, device, path_s) : std::min(end, at + std::max(1, length));
      if (at == 0) to = std::min(end, std::max(to, problem_.first_cut()));
      const int cheap = cheap_[to];
      if (snap_ && to < end && cheap > at && cheap < end && (cheap <= to || !refill)) to = cheap;
    }
    SetPart(part, at, to, device);
    excess_s += Excess(path_s + micro_batches_ * part.stage_s + share_ * ahead_s) +
                Excess(path_s + share_ * (part.stage_s + ahead_s) + (micro_batches_ - 1) * SlowerOf(part.before));
    if (excess_s > max_excess_s) return false;
    path_s += part.stage_s;
    at = to;
    before_device = device;
  }
  rebuilt_.resize(laid);
  return at == end;
}

bool StageAnnealing::Propose(double limit, bool refill) {
  work_ += kStagesOfAStep * static_cast<int64_t>(draft_.size() + 1) + static_cast<int64_t>(parts_.size());
  if (draft_.empty() || !Rebuild(refill, limit)) return false;
  const int old_count = static_cast<int>(parts_.size()), laid = static_cast<int>(rebuilt_.size());
  const int count = old_count - (last_ - first_) + laid;
  if (count < problem_.min_stages() || count > problem_.max_stages()) return false;
  for (int i = 0; i < laid; ++i) {
    if (!Fits(rebuilt_[i], count - first_ - i)) return false;
  }
  double whole_s = whole_s_;
  for (const Part& part : rebuilt_) whole_s += PathSeconds(part.before, part);
  for (int s = first_; s < last_; ++s) whole_s -= PathSeconds(parts_[s].before, parts_[s]);
  if (last_ < old_count) {
    behind_ = CrossingOf(parts_[last_].begin, rebuilt_.back().device, parts_[last_].device);
    if (!behind_.possible) return false;
    whole_s += PathSeconds(behind_, parts_[last_]) - PathSeconds(parts_[last_].before, parts_[last_]);
  }
  // What is laid first: that is where most moves fail.
  Prefix prefix = prefixes_[first_];
  prefix.excess_s = 0;
  for (const Part& part : rebuilt_) ExtendPrefix(prefix, whole_s, part.before, part);
  if (last_ < old_count) ExtendPrefix(prefix, whole_s, behind_, parts_[last_]);
  if (target_s_ + prefix.excess_s > limit) return false;
  const double shift_s = share_ * whole_s - target_s_;
  prefix.excess_s += ExcessOf(0, first_, shift_s);
  if (target_s_ + prefix.excess_s > limit) return false;
  if (last_ < old_count) {
    const Prefix& before = prefixes_[last_ + 1];
    prefix.excess_s += ExcessOf(last_ + 1, old_count, shift_s + (1 - share_) * (prefix.path_s - before.path_s));
    prefix.path_s += prefixes_.back().path_s - before.path_s;
    prefix.longest_s = std::max(prefix.longest_s, longest_behind_s_[last_ + 1]);
  }
  const double exchange_s = problem_.tied().empty() ? 0 : ExchangeSeconds(count, [&](size_t s) -> const Part& {
    const int i = static_cast<int>(s) - first_;
    return i < 0 ? parts_[s] : i < laid ? rebuilt_[i] : parts_[last_ + i - laid];
  });
  const double energy = EndOf(prefix) + exchange_s;
  if (energy > limit) return false;
  const double load_late_s = load_excess_s_;
  const auto load = [&](int sign) {
    for (int s = first_; s <= last_ && s < old_count; ++s) AddLoad(parts_[s].before, -sign);
    for (const Part& part : rebuilt_) AddLoad(part.before, sign);
    if (last_ < old_count) AddLoad(behind_, sign);
  };
  load(1);
  if (energy + load_excess_s_ > limit) {
    load(-1);
    load_excess_s_ = load_late_s;
    return false;
  }
  exchange_s_ = exchange_s;
  Accept();
  return true;
}

void StageAnnealing::Accept() {
  if (last_ < static_cast<int>(parts_.size())) parts_[last_].before = behind_;
  if (rebuilt_.size() == static_cast<size_t>(last_ - first_)) {
    std::copy(rebuilt_.begin(), rebuilt_.end(), parts_.begin() + first_);
  } else {
    parts_.erase(parts_.begin() + first_, parts_.begin() + last_);
    parts_.insert(parts_.begin() + first_, rebuilt_.begin(), rebuilt_.end());
  }
  ComputePrefixes();
}

bool StageAnnealing::MoveTarget(double limit, grid::Rng& rng) {
  const double before = target_s_;
  target_s_ *= std::exp((rng.Uniform() - 0.5) * (rng.Below(2) == 0 ? 0.1 : 0.01));
  Total();
  if (Energy() <= limit) return true;
  target_s_ = before;
  Total();
  return false;
}

// One cut, or several in a row, by the same number of ops.
bool StageAnnealing::ShiftCuts(double limit, grid::Rng& rng) {
  const int count = static_cast<int>(parts_.size());
  if (count < 2) return false;
  const int longest = rng.Below(3) == 0 ? kLongestRun : 1;
  const int cut = 1 + rng.Below(count - 1), until = std::min(count, cut + 1 + rng.Below(longest));
  const int step = kSteps[rng.Below(std::size(kSteps))], shift = rng.Below(2) == 0 ? step : -step;
  snap_ = snap_ && rng.Below(2) == 0;
  StartDraft(cut - 1, until);
  for (int s = first_; s < last_; ++s) {
    const int length = parts_[s].end - parts_[s].begin + (s == first_ ? shift : 0) - (s == last_ - 1 ? shift : 0);
    if (length < 1) return false;
    AppendToDraft(parts_[s].device, length);
  }
  return Propose(limit, false);
}

// The same devices in another order: two exchanged, a run of them reversed or put elsewhere.
bool StageAnnealing::Rearrange(double limit, grid::Rng& rng) {
  const int count = static_cast<int>(parts_.size());
  if (count < 2) return false;
  int a = rng.Below(count), b = rng.Below(count);
  if (a == b) return false;
  if (a > b) std::swap(a, b);
  const auto give = [&](int s) { AppendToDraft(parts_[s].device, parts_[s].end - parts_[s].begin); };
  StartDraft(a, b + 1);
  const int kind = rng.Below(4);
  if (kind == 0) {
    for (int s = b; s >= a; --s) give(s);
  } else if (kind == 1) {
    give(b);
    for (int s = a + 1; s < b; ++s) give(s);
    give(a);
  } else {
    // The first so many behind the others, which may be more or fewer.
    const int split = kind == 2 ? a + 1 + rng.Below(b - a) : (rng.Below(2) == 0 ? a + 1 : b);
    for (int s = split; s <= b; ++s) give(s);
    for (int s = a; s < split; ++s) give(s);
  }
  return Propose(limit, rng.Below(2) == 0);
}

// One more device, one less, or another one.
bool StageAnnealing::ChangeDevices(double limit, grid::Rng& rng) {
  const int count = static_cast<int>(parts_.size());
  const int kind = rng.Below(3), at = rng.Below(count);
  if (kind < 2 && unused_.empty()) return false;
  const int reach = rng.Below(kLongestRun);  // neighbours that take part
  const int first = std::max(0, at - reach), last = std::min(count, at + 1 + reach);
  if (kind == 2 && last - first < 2) return false;
  const size_t chosen = unused_.empty() ? 0 : rng.Below(static_cast<int>(unused_.size()));
  StartDraft(first, last);
  for (int s = first; s < last; ++s) {
    const int length = parts_[s].end - parts_[s].begin;
    if (s != at) {
      AppendToDraft(parts_[s].device, length);
    } else if (kind == 0) {
      AppendToDraft(unused_[chosen], length);
    } else if (kind == 1) {
      AppendToDraft(unused_[chosen], length / 2);
      AppendToDraft(parts_[s].device, length - length / 2);
    }
  }
  return Propose(limit, kind == 2 || rng.Below(3) > 0);
}

bool StageAnnealing::Move(double limit, grid::Rng& rng) {
  snap_ = rng.Below(4) > 0;
  const int kind = rng.Below(100);
  if (kind < 4) return MoveTarget(limit, rng);
  if (kind < 45) return ShiftCuts(limit, rng);
  if (kind < 80) return Rearrange(limit, rng);
  return ChangeDevices(limit, rng);
}

Assignment StageAnnealing::Run(const Assignment& start, double share, int64_t max_work, grid::Rng& rng) {
  share_ = problem_.request().schedule.forwards_first() ? 1 : share;
  Start(start);
  double energy = Energy(), best = energy;
  const double hottest = kHottest * energy, cooling = std::log(kColdest / kHottest);
  std::vector<Part> best_parts = parts_;
  const int64_t begin = work_;
  while (work_ - begin < max_work && !problem_.Stopped()) {
    ++work_;
    const double temperature = hottest * std::exp(cooling * static_cast<double>(work_ - begin) / static_cast<double>(max_work));
    if (!Move(energy - temperature * std::log(1 - rng.Uniform()), rng)) continue;
    energy = Energy();
    FindUnused();
    if (energy < best * (1 - 1e-12)) {
      best = energy;
      best_parts = parts_;
    }
  }
  Assignment assignment;
  for (const Part& part : best_parts) {
    assignment.begins.push_back(part.begin);
    assignment.devices.push_back(part.device);
  }
  return assignment;
}

}  // namespace fusionllm::scheduler
