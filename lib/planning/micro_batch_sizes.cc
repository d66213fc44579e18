#include "lib/planning/micro_batch_sizes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "lib/autodiff/training_graph.h"
#include "lib/base/status_macros.h"
#include "lib/estimator/graph_cost.h"
#include "lib/job/default_micro_batch.h"
#include "lib/opdag/accounting.h"
#include "lib/scheduler/infinity.h"
#include "lib/scheduler/snapshot.h"

namespace fusionllm::planning {
namespace {

// A step between sizes that are priced first.
constexpr double kCoarseStep = 1.8;
// A size is not looked beyond where so many further ones cost more than the best.
constexpr int kWorseInARow = 2;
// Between two coarse sizes.
constexpr size_t kMaxRefined = 6;

using scheduler::kInfinity;

bool HasBatchNorm(const opdag::Graph& graph) {
  return std::any_of(graph.ops().begin(), graph.ops().end(), [](const opdag::Op& op) { return op.kind == opdag::OpKind::kBatchNorm; });
}

// By op; empty for those that take no time.
std::vector<std::string> SignaturesOf(const workload::Workload& workload) {
  const opdag::Graph& graph = workload.training.graph;
  const std::vector<bool> views = autodiff::ViewsOf(workload.training);
  std::vector<std::string> signatures;
  for (size_t op = 0; op < graph.ops().size(); ++op) {
    const bool free = views[op] || graph.ops()[op].kind == opdag::OpKind::kPlaceholder;
    signatures.push_back(free ? "" : estimator::OpSignature(graph, graph.ops()[op]));
  }
  return signatures;
}

bool HasAll(const wire::DeviceProfile& device, const std::vector<std::string>& signatures) {
  return std::all_of(signatures.begin(), signatures.end(),
                     [&](const std::string& signature) { return signature.empty() || device.ops.contains(signature); });
}

std::vector<int64_t> DivisorsOf(int64_t number) {
  std::vector<int64_t> low, high;
  for (int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    low.push_back(d);
    if (d != number / d) high.push_back(number / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

// Of `sizes`: `first`, and from there both ways those that are kCoarseStep apart at least; the ends.
std::vector<int64_t> CoarseOf(const std::vector<int64_t>& sizes, int64_t first) {
  std::vector<int64_t> coarse = {first};
  int64_t last = first;
  for (auto size = std::upper_bound(sizes.begin(), sizes.end(), first); size != sizes.end(); ++size) {
    const bool end = std::next(size) == sizes.end();
    if (static_cast<double>(*size) < kCoarseStep * static_cast<double>(last) && !end) continue;
    coarse.push_back(last = *size);
  }
  last = first;
  for (auto size = std::lower_bound(sizes.begin(), sizes.end(), first); size != sizes.begin();) {
    --size;
    if (kCoarseStep * static_cast<double>(*size) > static_cast<double>(last) && size != sizes.begin()) continue;
    coarse.push_back(last = *size);
  }
  std::sort(coarse.begin(), coarse.end());
  return coarse;
}

}  // namespace

MicroBatchSizes::MicroBatchSizes(const workload::Workload& job) : job_(job) {
  const int64_t batch = job.job.spec.training.global_batch_size;
  const int64_t least = HasBatchNorm(job.training.graph) ? job.micro_batch_size : 1;
  for (const int64_t size : DivisorsOf(batch)) {
    if (size >= least && batch / size <= scheduler::kMaxMicroBatches) all_.push_back(size);
  }
  const auto add = [](int64_t size, std::vector<int64_t>& sizes) {
    if (!std::binary_search(sizes.begin(), sizes.end(), size)) sizes.insert(std::upper_bound(sizes.begin(), sizes.end(), size), size);
  };
  const int64_t measured_first = std::max(least, job::DefaultMicroBatchSize(batch));
  add(job.micro_batch_size, all_);
  add(measured_first, all_);
  calibrated_ = CoarseOf(all_, measured_first);
  for (const int64_t size : {job.micro_batch_size, int64_t{1}, int64_t{2}}) add(size, calibrated_);
}

absl::StatusOr<const MicroBatchSizes::Sized*> MicroBatchSizes::Build(int64_t size) {
  auto found = built_.find(size);
  if (found == built_.end()) {
    const auto build = [&]() -> absl::StatusOr<Sized> {
      job::FusionJob job = job_.job;
      job.spec.training.micro_batch_size = size;
      Sized sized;
      FUSIONLLM_ASSIGN_OR_RETURN(sized.workload, workload::Resolve(job, job_.base_directory));
      sized.signatures = SignaturesOf(*sized.workload);
      return sized;
    };
    found = built_.emplace(size, build()).first;
  }
  FUSIONLLM_RETURN_IF_ERROR(found->second.status());
  return &*found->second;
}

absl::StatusOr<const workload::Workload*> MicroBatchSizes::At(int64_t size) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Sized* const sized, Build(size));
  return sized->workload.get();
}

std::vector<const MicroBatchSizes::Sized*> MicroBatchSizes::MeasuredAt(const wire::DeviceProfile& device) {
  std::vector<const Sized*> measured;
  if (device.ops.empty()) return measured;
  for (const int64_t size : calibrated_) {
    const absl::StatusOr<const Sized*> sized = Build(size);
    if (!sized.ok()) continue;
    if (HasAll(device, (*sized)->signatures)) measured.push_back(*sized);
  }
  return measured;
}

std::vector<int64_t> MicroBatchSizes::PlannableOn(const Profiles& profiles) {
  int64_t most = std::numeric_limits<int64_t>::max();
  const wire::DeviceProfile* last = nullptr;
  for (const wire::DeviceProfile& device : profiles.devices) {
    if (last != nullptr && last->ops == device.ops) continue;  // one machine stands for many devices
    last = &device;
    const std::vector<const Sized*> measured = MeasuredAt(device);
    if (!measured.empty()) most = std::min(most, measured.back()->workload->micro_batch_size);
  }
  std::vector<int64_t> sizes;
  for (const int64_t size : all_) {
    if (size <= most || size == job_.micro_batch_size) sizes.push_back(size);
  }
  return sizes;
}

void MicroBatchSizes::Infer(const Sized& wanted, wire::DeviceProfile& device) {
  if (device.ops.empty() || HasAll(device, wanted.signatures)) return;
  const std::vector<const Sized*> measured = MeasuredAt(device);
  if (measured.empty()) return;
  const opdag::Graph& graph = wanted.workload->training.graph;
  const auto size = static_cast<double>(wanted.workload->micro_batch_size);
  std::map<std::string, wire::OpProfile> inferred;
  for (size_t op = 0; op < wanted.signatures.size(); ++op) {
    const std::string& signature = wanted.signatures[op];
    if (signature.empty() || device.ops.contains(signature) || inferred.contains(signature)) continue;
    // The two measured sizes around the wanted one, else the two that are nearest.
    const auto above = static_cast<size_t>(
        std::find_if(measured.begin(), measured.end(),
                     [&](const Sized* other) { return static_cast<double>(other->workload->micro_batch_size) > size; }) -
        measured.begin());
    const size_t high = std::clamp<size_t>(above, std::min<size_t>(1, measured.size() - 1), measured.size() - 1);
    const size_t low = high == 0 ? 0 : high - 1;
    const auto point = [&](size_t which) -> const wire::OpProfile* {
      if (op >= measured[which]->signatures.size()) return nullptr;
      const auto found = device.ops.find(measured[which]->signatures[op]);
      return found == device.ops.end() ? nullptr : &found->second;
    };
    const wire::OpProfile *const a = point(low), *const b = point(high);
    if (a == nullptr || b == nullptr) continue;
    const auto at = [&](size_t which) { return static_cast<double>(measured[which]->workload->micro_batch_size); };
    const opdag::OpCost cost = opdag::CostOf(graph, graph.ops()[op]);
    wire::OpProfile out = *b;
    out.flops = cost.flops;
    out.bytes = static_cast<double>(cost.bytes_read + cost.bytes_written);
    out.relative_error = kInferredError;
    // No op takes less for more samples, nor less than nothing for few.
    const double slope = low == high ? b->seconds / at(high) : std::max(0.0, (b->seconds - a->seconds) / (at(high) - at(low)));
    out.seconds = std::max(a->seconds + slope * (size - at(low)), a->seconds * std::min(1.0, size / at(low)));
    const double samples = std::max(1.0, size / at(size < at(high) ? low : high));
    out.workspace_bytes = static_cast<int64_t>(std::ceil(samples * static_cast<double>((size < at(high) ? a : b)->workspace_bytes)));
    inferred.emplace(signature, out);
  }
  device.ops.merge(std::move(inferred));
}

absl::StatusOr<Profiles> MicroBatchSizes::ProfilesAt(int64_t size, const Profiles& profiles) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Sized* const wanted, Build(size));
  Profiles out = profiles;
  for (size_t d = 0; d < out.devices.size(); ++d) {
    if (d > 0 && profiles.devices[d].ops == profiles.devices[d - 1].ops) {
      out.devices[d].ops = out.devices[d - 1].ops;
    } else {
      Infer(*wanted, out.devices[d]);
    }
  }
  return out;
}

absl::StatusOr<std::optional<Profiles>> InferredProfiles(const workload::Workload& workload, const Profiles& profiles) {
  const std::vector<std::string> signatures = SignaturesOf(workload);
  const bool complete = std::all_of(profiles.devices.begin(), profiles.devices.end(),
                                    [&](const wire::DeviceProfile& device) { return device.ops.empty() || HasAll(device, signatures); });
  if (complete) return std::nullopt;
  FUSIONLLM_ASSIGN_OR_RETURN(Profiles inferred, MicroBatchSizes(workload).ProfilesAt(workload.micro_batch_size, profiles));
  return inferred;
}

absl::StatusOr<JobAtSize> AtMicroBatchSize(const workload::Workload& job, const Profiles& profiles, int64_t size) {
  if (job.job.spec.training.global_batch_size % size != 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the plan is of micro-batches of %d samples, and a batch of %d is no multiple of them", size,
                        job.job.spec.training.global_batch_size));
  }
  MicroBatchSizes sizes(job);
  JobAtSize at;
  FUSIONLLM_ASSIGN_OR_RETURN(at.profiles, sizes.ProfilesAt(size, profiles));
  job::FusionJob sized = job.job;
  sized.spec.training.micro_batch_size = size;
  FUSIONLLM_ASSIGN_OR_RETURN(at.workload, workload::Resolve(sized, job.base_directory));
  return at;
}

absl::StatusOr<std::vector<SizeCost>> SearchSizes(const std::vector<int64_t>& sizes, int64_t first, const CostOfSize& cost) {
  std::map<int64_t, double> priced;
  const auto price = [&](int64_t size) -> absl::StatusOr<double> {
    const auto found = priced.find(size);
    if (found != priced.end()) return found->second;
    FUSIONLLM_ASSIGN_OR_RETURN(const double seconds, cost(size));
    return priced[size] = seconds;
  };
  const auto best = [&] {
    return std::min_element(priced.begin(), priced.end(), [](const auto& a, const auto& b) { return a.second < b.second; })->first;
  };
  const std::vector<int64_t> coarse = CoarseOf(sizes, first);
  const auto middle = static_cast<int>(std::find(coarse.begin(), coarse.end(), first) - coarse.begin());
  FUSIONLLM_RETURN_IF_ERROR(price(first).status());
  for (const int way : {-1, 1}) {
    int worse = 0;
    for (int i = middle + way; i >= 0 && i < static_cast<int>(coarse.size()) && worse < kWorseInARow; i += way) {
      const double before = priced[best()];
      FUSIONLLM_ASSIGN_OR_RETURN(const double now, price(coarse[i]));
      // Without a plan so far, smaller ones are all there is to try: what does not fit does not fit in larger ones.
      if (before == kInfinity && now == kInfinity && way < 0) continue;
      worse = now < before ? 0 : worse + 1;
    }
  }
  // Those between the best and its neighbours.
  const auto at = std::find(coarse.begin(), coarse.end(), best());
  for (const int way : {-1, 1}) {
    if ((way < 0 && at == coarse.begin()) || (way > 0 && std::next(at) == coarse.end())) continue;
    const int64_t low = way < 0 ? *std::prev(at) : *at, high = way < 0 ? *at : *std::next(at);
    std::vector<int64_t> between;
    std::copy_if(sizes.begin(), sizes.end(), std::back_inserter(between), [&](int64_t size) { return size > low && size < high; });
    if (way < 0) std::reverse(between.begin(), between.end());  // the nearest to the best first
    for (size_t i = 0; i < std::min(between.size(), kMaxRefined); ++i) FUSIONLLM_RETURN_IF_ERROR(price(between[i]).status());
  }
  std::vector<SizeCost> out;
  for (const auto& [size, seconds] : priced) out.push_back({size, seconds});
  return out;
}

}  // namespace fusionllm::planning
