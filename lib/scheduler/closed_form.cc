#include "lib/scheduler/closed_form.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "lib/scheduler/pipeline_model.h"

namespace fusionllm::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSlack = 1 + 1e-9;
constexpr int kLookBack = 48;  // positions before the furthest end that are tried as cuts

}  // namespace

ClosedForm::Crossing ClosedForm::CrossingAt(int position, int src, int dst, double cap_s) const {
  const auto one_way = [&](const DirectedLink& link, int64_t lossy, int64_t lossless) -> double {
    if (lossy + lossless == 0) return 0;
    if (link.bytes_per_s <= 0) return kInfinity;
    const double dense_s = static_cast<double>(lossy + lossless) / link.bytes_per_s;
    if (dense_s <= cap_s) return dense_s;
    const double least_s = (static_cast<double>(lossy) / problem_.max_ratio() + static_cast<double>(lossless)) / link.bytes_per_s;
    return least_s > cap_s * kSlack ? kInfinity : cap_s;
  };
  const DirectedLink there = problem_.link(src, dst), back = problem_.link(dst, src);
  return {.latency_s = there.latency_s + back.latency_s,
          .forward_s = one_way(there, problem_.LossyBytesAt(position), problem_.LosslessBytesAt(position)),
          .backward_s = one_way(back, problem_.GradientBytesAt(position), 0)};
}

double ClosedForm::StepSeconds(const Assignment& assignment) const {
  const size_t count = assignment.devices.size();
  double sum_s = 0, slowest_s = 0;
  for (size_t s = 0; s < count; ++s) {
    const int end = s + 1 < count ? assignment.begins[s + 1] : problem_.positions();
    const double stage_s = StageSeconds(assignment.begins[s], end, assignment.devices[s]);
    sum_s += stage_s;
    slowest_s = std::max(slowest_s, stage_s);
  }
  // What no codec can squeeze below the slowest stage is the bottleneck itself.
  double cap_s = slowest_s;
  for (size_t s = 1; s < count; ++s) {
    const int p = assignment.begins[s], src = assignment.devices[s - 1], dst = assignment.devices[s];
    const DirectedLink there = problem_.link(src, dst), back = problem_.link(dst, src);
    if (there.bytes_per_s <= 0 || (problem_.GradientBytesAt(p) > 0 && back.bytes_per_s <= 0)) return kInfinity;
    const double ratio = problem_.max_ratio();
    cap_s = std::max(cap_s, (static_cast<double>(problem_.LossyBytesAt(p)) / ratio + static_cast<double>(problem_.LosslessBytesAt(p))) /
                                there.bytes_per_s);
    if (problem_.GradientBytesAt(p) > 0) {
      cap_s = std::max(cap_s, static_cast<double>(problem_.GradientBytesAt(p)) / ratio / back.bytes_per_s);
    }
  }
  std::vector<double> crossing_s(count, 0);  // before each stage
  for (size_t s = 1; s < count; ++s) {
    const Crossing crossing = CrossingAt(assignment.begins[s], assignment.devices[s - 1], assignment.devices[s], cap_s);
    crossing_s[s] = crossing.seconds();
    sum_s += crossing_s[s];
    slowest_s = std::max({slowest_s, crossing.forward_s, crossing.backward_s});
  }
  // Little's law where memory holds few micro-batches: a stage takes up the next one when the gradients of an earlier one are back.
  const int m = problem_.request().micro_batches;
  double step_s = FillPlusBottleneck(sum_s, slowest_s, m), round_trip_s = sum_s;
  for (size_t s = 0; s < count; ++s) {
    const int end = s + 1 < count ? assignment.begins[s + 1] : problem_.positions();
    const int depth = DepthThatFits(assignment.begins[s], end, assignment.devices[s]);
    round_trip_s -= crossing_s[s];
    if (depth < m) step_s = std::max(step_s, sum_s - round_trip_s + round_trip_s * m / depth);
    round_trip_s -= StageSeconds(assignment.begins[s], end, assignment.devices[s]);
  }
  return step_s;
}

int ClosedForm::DepthThatFits(int begin, int end, int device) const {
  const PlanRequest& request = problem_.request();
  const int most = request.max_in_flight > 0 ? std::min(request.max_in_flight, request.micro_batches) : request.micro_batches;
  const int64_t stash = problem_.StashBound(begin, end);
  if (stash <= 0 || request.schedule == Schedule::kGPipe) return most;
  const int64_t room = problem_.UsableMemory(device) - NeededBytes(begin, end, device, 0);
  return static_cast<int>(std::clamp<int64_t>(room / stash, 1, most));
}

int64_t ClosedForm::NeededBytes(int begin, int end, int device, int in_flight) const {
  // Two messages each way at each border, as Evaluator counts them, at the most that a codec leaves of them.
  const auto buffers = [&](int position) -> int64_t {
    if (position <= 0 || position >= problem_.positions()) return 0;
    const double lossy = static_cast<double>(problem_.LossyBytesAt(position) + problem_.GradientBytesAt(position)) / problem_.max_ratio();
    return 2 * (static_cast<int64_t>(lossy) + problem_.LosslessBytesAt(position));
  };
  return problem_.StaticBytes(begin, end) + in_flight * problem_.StashBound(begin, end) + problem_.ScratchBound(begin, end) +
         buffers(begin) + buffers(end);
}

int ClosedForm::FurthestEnd(int begin, int last, int device, double cap_s, int in_flight) const {
  const int64_t memory = problem_.UsableMemory(device);
  const auto fits = [&](int end) {
    return StageSeconds(begin, end, device) <= cap_s * kSlack && NeededBytes(begin, end, device, in_flight) <= memory;
  };
  // Galloping, then bisection: both grow with the end, but for the messages at it, which are small beside them.
  int good = begin, step = 1;
  while (good < last && fits(std::min(last, good + step))) {
    good = std::min(last, good + step);
    step *= 2;
  }
  for (step /= 2; step > 0; step /= 2) {
    if (good + step <= last && fits(good + step)) good += step;
  }
  return good;
}

int ClosedForm::BestCut(int begin, int furthest, int device, int next_device, double cap_s, double least_share) const {
  const int low = std::max({begin + 1, furthest - kLookBack, begin == 0 ? problem_.first_cut() : 0});
  const double least_s = least_share * StageSeconds(begin, furthest, device);
  int best = -1;
  double best_cost = kInfinity;
  for (int cut = furthest; cut >= low; --cut) {
    const double stage_s = StageSeconds(begin, cut, device);
    if (stage_s < least_s && best >= 0) break;
    const double cost = CrossingAt(cut, device, next_device, cap_s).seconds() / std::max(stage_s, 1e-12);
    if (cost < best_cost) {
      best = cut;
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace fusionllm::scheduler
