#include "lib/scheduler/closed_form.h"

#include <algorithm>
#include <vector>

#include "lib/scheduler/infinity.h"
#include "lib/scheduler/pipeline_model.h"

namespace fusionllm::scheduler {
namespace {

constexpr double kCapSlack = 1 + 1e-9;
constexpr int kLookBack = 48;  // positions before the furthest end that are tried as cuts

}  // namespace

ClosedForm::Crossing ClosedForm::CrossingOf(const CutTraffic& bytes, int src, int dst, double cap_s) const {
  const auto one_way = [&](const DirectedLink& link, int64_t lossy, int64_t lossless) -> double {
    if (lossy + lossless == 0) return 0;
    if (link.bytes_per_s <= 0) return kInfinity;
    const double dense_s = static_cast<double>(lossy + lossless) / link.bytes_per_s;
    if (dense_s <= cap_s) return dense_s;
    const double min_s = (static_cast<double>(lossy) / problem_.max_ratio() + static_cast<double>(lossless)) / link.bytes_per_s;
    return min_s > cap_s * kCapSlack ? kInfinity : cap_s;
  };
  const DirectedLink there = problem_.link(src, dst), back = problem_.link(dst, src);
  return {.latency_s = there.latency_s + back.latency_s,
          .forward_s = one_way(there, bytes.lossy, bytes.lossless),
          .backward_s = one_way(back, bytes.gradient, 0)};
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
  const int most = request.schedule.MaxInFlight(request.micro_batches, request.max_in_flight);
  if (request.schedule.forwards_first()) return most;
  const int64_t with_two = NeededBytes(begin, end, device, 2), room = problem_.UsableMemory(device) - with_two;
  if (room < 0) return 1;
  const int64_t with_more = NeededBytes(begin, end, device, 3) - with_two;  // each
  return with_more > 0 ? static_cast<int>(std::min<int64_t>(2 + room / with_more, most)) : most;
}

int64_t ClosedForm::NeededBytes(int begin, int end, int device, int in_flight) const {
  // As Evaluator counts messages: two each way at each border, those that wait for a slow link, and those that come early and are more than
  // what the stage stashes; at the most that a codec leaves of them.
  struct Messages {
    int64_t both = 0, larger = 0;
  };
  const auto messages = [&](int position) -> Messages {
    if (position <= 0 || position >= problem_.positions()) return {};
    const double ratio = problem_.max_ratio();
    const auto forward =
        static_cast<int64_t>(static_cast<double>(problem_.LossyBytesAt(position)) / ratio) + problem_.LosslessBytesAt(position);
    const auto backward = static_cast<int64_t>(static_cast<double>(problem_.GradientBytesAt(position)) / ratio);
    return {forward + backward, std::max(forward, backward)};
  };
  const Messages in = messages(begin), out = messages(end);
  const int64_t stash = problem_.StashBound(begin, end);
  return problem_.StaticBytes(begin, end) + in_flight * stash + problem_.ScratchBound(begin, end) + 2 * (in.both + out.both) +
         out.larger * std::max(0, in_flight - 2) + std::max<int64_t>(0, in.larger - stash) * std::max(0, in_flight - 1);
}

int ClosedForm::FurthestEnd(int begin, int last, int device, double cap_s, int in_flight) const {
  const int64_t memory = problem_.UsableMemory(device);
  const auto fits = [&](int end) {
    return StageSeconds(begin, end, device) <= cap_s * kCapSlack && NeededBytes(begin, end, device, in_flight) <= memory;
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

int ClosedForm::BestCut(int begin, int furthest, int device, int next_device, double cap_s, double min_share) const {
  const int low = std::max({begin + 1, furthest - kLookBack, begin == 0 ? problem_.first_cut() : 0});
  const double min_s = min_share * StageSeconds(begin, furthest, device);
  int best = -1;
  double best_cost = kInfinity;
  for (int cut = furthest; cut >= low; --cut) {
    const double stage_s = StageSeconds(begin, cut, device);
    if (stage_s < min_s && best >= 0) break;
    const double cost = CrossingAt(cut, device, next_device, cap_s).seconds() / std::max(stage_s, 1e-12);
    if (cost < best_cost) {
      best = cut;
      best_cost = cost;
    }
  }
  return best;
}

}  // namespace fusionllm::scheduler
