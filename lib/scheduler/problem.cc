#include "lib/scheduler/problem.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/pluralize.h"
#include "lib/base/status_macros.h"
#include "lib/scheduler/op_order.h"
#include "lib/scheduler/plan_error_reasons.h"

namespace fusionllm::scheduler {
namespace {

std::vector<int> PositionsOf(const std::vector<int>& ops, const std::vector<int>& position_of) {
  std::vector<int> positions;
  positions.reserve(ops.size());
  for (int op : ops) positions.push_back(position_of[op]);
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  return positions;
}

void AddRange(std::vector<int64_t>& difference, int begin, int end, int64_t bytes) {
  if (begin >= end) return;
  difference[begin] += bytes;
  difference[end] -= bytes;
}

void SumUp(std::vector<int64_t>& difference) {
  for (size_t i = 1; i < difference.size(); ++i) difference[i] += difference[i - 1];
}

}  // namespace

const LinkCodecPolicy& Problem::codec_policy() const {
  static const ExactPolicy exact;
  return request_->codec_policy != nullptr ? *request_->codec_policy : exact;
}

absl::StatusOr<std::variant<std::unique_ptr<Problem>, PlanError>> Problem::Create(const PlanRequest& request, StopFunction stop) {
  using Created = absl::StatusOr<std::variant<std::unique_ptr<Problem>, PlanError>>;
  FUSIONLLM_RETURN_IF_ERROR(Validate(request));
  std::unique_ptr<Problem> problem(new Problem(request));
  problem->stop_ = std::move(stop);
  problem->device_count_ = request.devices.size();
  problem->BuildChain();
  PlanError refusal;
  if (!problem->ResolveConstraints(refusal) || !problem->ResolvePins(refusal)) {
    return Created(absl::in_place, std::in_place_type<PlanError>, std::move(refusal));
  }
  problem->BuildValues();
  problem->BuildMemory();
  problem->max_ratio_ = std::max(1.0, problem->codec_policy().MaxRatio());
  problem->max_direction_ratio_ = std::max(problem->max_ratio_, problem->codec_policy().MaxDirectionRatio());
  return Created(absl::in_place, std::in_place_type<std::unique_ptr<Problem>>, std::move(problem));
}

void Problem::BuildChain() {
  const PlanRequest& request = *request_;
  order_ = request.order.empty() ? OrderOps(request) : request.order;
  const int n = positions();
  position_of_.resize(n);
  for (int p = 0; p < n; ++p) position_of_[order_[p]] = p;
  int placeholders = 0;
  while (placeholders < n && request.ops[order_[placeholders]].placeholder) ++placeholders;
  first_cut_ = placeholders + 1;

  size_t classes = 0;
  for (const Device& device : request.devices) classes = std::max<size_t>(classes, device.cost_class + 1);
  const auto sum_times = [&](std::vector<std::vector<double>>& sums, std::vector<double> OpNode::*times) {
    sums.assign(classes, std::vector<double>(n + 1, 0));
    for (size_t c = 0; c < classes; ++c) {
      for (int p = 0; p < n; ++p) {
        const std::vector<double>& of_op = request.ops[order_[p]].*times;
        sums[c][p + 1] = sums[c][p] + (of_op.empty() ? 0 : of_op[c]);
      }
    }
  };
  sum_times(forward_, &OpNode::forward_s);
  sum_times(backward_, &OpNode::backward_s);
  if (request.recompute) {
    for (size_t c = 0; c < classes; ++c) {
      double again_s = 0;
      for (int p = first_cut_ - 1; p < n; ++p) {  // data is kept, not read again
        if (request.ops[order_[p]].runs_again) again_s += forward_[c][p + 1] - forward_[c][p];
        backward_[c][p + 1] += again_s;
      }
    }
  }
  sum_times(update_, &OpNode::update_s);
  flops_.assign(n + 1, 0);
  static_.assign(n + 1, 0);
  for (int p = 0; p < n; ++p) {
    const OpNode& op = request.ops[order_[p]];
    flops_[p + 1] = flops_[p] + op.flops;
    static_[p + 1] = static_[p] + op.parameter_bytes + op.gradient_bytes + op.optimizer_bytes;
  }
  BuildWorkspace();
  for (const TiedParameter& tied : request.tied) tied_.push_back(PositionsOf(tied.ops, position_of_));
}

void Problem::BuildValues() {
  const int n = positions();
  for (std::vector<int64_t>* table : {&stash_, &stash_alive_, &lossy_alive_, &lossless_alive_, &gradient_alive_}) table->assign(n + 2, 0);
  for (size_t v = 0; v < request_->values.size(); ++v) {
    const ValueNode& value = request_->values[v];
    ChainValue chain{.producer = position_of_[value.producer],
                     .consumers = PositionsOf(value.consumers, position_of_),
                     .kept_by = PositionsOf(value.kept_by, position_of_),
                     .bytes = value.bytes,
                     .wire_bytes = value.wire_bytes > 0 ? value.wire_bytes : value.bytes,
                     .bytes_of_element = value.bytes_of_element,
                     .kind = value.kind,
                     .value = static_cast<int>(v),
                     .differentiable = value.differentiable,
                     .lossless_only = value.lossless_only};
    chain.last_consumer = chain.consumers.empty() ? chain.producer : chain.consumers.back();
    if (request_->recompute) AddReaders(value, chain);
    const bool lossy = value.differentiable && !value.lossless_only;
    AddRange(lossy ? lossy_alive_ : lossless_alive_, chain.producer + 1, chain.last_consumer + 1, chain.wire_bytes);
    if (value.differentiable) AddRange(gradient_alive_, chain.producer + 1, chain.last_consumer + 1, value.bytes);
    if (!chain.kept_by.empty()) {
      stash_[chain.kept_by.front() + 1] += value.bytes;
      AddRange(stash_alive_, chain.kept_by.front() + 1, chain.kept_by.back() + 1, value.bytes);
    }
    values_.push_back(std::move(chain));
  }
  for (std::vector<int64_t>* table : {&stash_, &stash_alive_, &lossy_alive_, &lossless_alive_, &gradient_alive_}) SumUp(*table);
  if (request_->recompute) BuildBlocks();
}

void Problem::BuildMemory() {
  usable_memory_.resize(device_count_);
  for (size_t d = 0; d < device_count_; ++d) {
    const double share = static_cast<double>(request_->devices[d].memory_bytes) * (1 - request_->memory_headroom);
    usable_memory_[d] = std::max<int64_t>(0, static_cast<int64_t>(share) - request_->memory_reserve_bytes);
  }
}

bool Problem::ResolveConstraints(PlanError& refusal) {
  const PlanRequest& request = *request_;
  std::map<absl::string_view, int> device_by_name;
  for (size_t d = 0; d < device_count_; ++d) device_by_name[request.devices[d].name] = static_cast<int>(d);
  std::set<int> excluded;
  for (const std::string& name : request.exclude) {
    const auto found = device_by_name.find(name);
    // One that is not there (any more) is left out as was asked.
    if (found != device_by_name.end()) excluded.insert(found->second);
  }
  for (size_t d = 0; d < device_count_; ++d) {
    if (!request.devices[d].spare && excluded.count(static_cast<int>(d)) == 0) usable_.push_back(static_cast<int>(d));
  }
  const int available = static_cast<int>(usable_.size());
  const std::string why = request.exclude_why.empty() ? "" : absl::StrCat("; ", request.exclude_why);
  if (available == 0) {
    refusal = {plan_errors::kNoExecutors,
               absl::StrFormat("no executor is left to run the job: %d are registered, %d excluded, the others are spares%s", device_count_,
                               excluded.size(), why),
               {"executors", 1, 0}};
    return false;
  }
  const int ops = positions() - first_cut_ + 1;
  if (ops < 1) {
    refusal = {plan_errors::kNoOps, "the graph has placeholders only: nothing to run", {"ops", 1, 0}};
    return false;
  }
  const int wanted = std::max(request.stages, request.min_executors);
  if (wanted > available) {
    refusal = {plan_errors::kTooFewExecutors,
               absl::StrFormat("%s asks for %s, %d %s usable%s", wanted == request.stages ? "spec.strategy.stages" : "spec.executors.min",
                               base::Pluralize(wanted, "executor"), available, available == 1 ? "is" : "are", why),
               {"executors", static_cast<double>(wanted), static_cast<double>(available)}};
    return false;
  }
  if (wanted > ops) {
    refusal = {plan_errors::kTooManyStages,
               absl::StrFormat("%s asks for %s, the model has only %s to share out",
                               wanted == request.stages ? "spec.strategy.stages" : "spec.executors.min", base::Pluralize(wanted, "stage"),
                               base::Pluralize(ops, "op")),
               {"ops", static_cast<double>(wanted), static_cast<double>(ops)}};
    return false;
  }
  max_stages_ = std::min({available, ops, request.max_executors > 0 ? request.max_executors : available});
  if (request.stages > 0 && request.max_executors > 0 && request.stages > request.max_executors) {
    const std::string limit = request.max_executors_why.empty() ? "" : absl::StrCat(": ", request.max_executors_why);
    refusal = {plan_errors::kTooManyStages,
               absl::StrFormat("spec.strategy.stages is %d, spec.executors (max, replicas, less spares) allows %d%s", request.stages,
                               request.max_executors, limit),
               {"executors", static_cast<double>(request.stages), static_cast<double>(request.max_executors)}};
    return false;
  }
  min_stages_ = request.use_all_devices ? max_stages_ : std::clamp(request.min_executors, 1, max_stages_);
  if (request.stages > 0) min_stages_ = max_stages_ = request.stages;
  return true;
}

bool Problem::ResolvePins(PlanError& refusal) {
  if (request_->pins.empty() && request_->first_device.empty()) return true;
  const int n = positions();
  pinned_to_.assign(n, -1);
  std::vector<const Pin*> pin_of(n, nullptr);
  // The first op of the first stage that is no placeholder; its stage holds them all.
  const Pin data{.ops = request_->first_device.empty() ? "" : request_->ops[order_[first_cut_ - 1]].name, .device = request_->first_device};
  if (!data.device.empty()) {
    const auto device = std::find_if(usable_.begin(), usable_.end(), [&](int d) { return request_->devices[d].name == data.device; });
    if (device == usable_.end()) {
      refusal = {plan_errors::kUnknownDevice,
                 absl::StrFormat("%s, which is to run the first stage for it has the training data, is not among the %d usable executors",
                                 data.device, usable_.size()),
                 {}};
      return false;
    }
    pinned_to_[first_cut_ - 1] = *device;
    pin_of[first_cut_ - 1] = &data;
  }
  for (const Pin& pin : request_->pins) {
    const auto device = std::find_if(usable_.begin(), usable_.end(), [&](int d) { return request_->devices[d].name == pin.device; });
    if (device == usable_.end()) {
      refusal = {plan_errors::kUnknownDevice,
                 absl::StrFormat("a pin of ops '%s' names device '%s', which is not among the %d usable executors", pin.ops, pin.device,
                                 usable_.size()),
                 {}};
      return false;
    }
    bool matched = false;
    for (int p = 0; p < n; ++p) {
      const OpNode& op = request_->ops[order_[p]];
      // Placeholders live in the first stage whatever a broad glob says.
      if (op.placeholder || !MatchesGlob(pin.ops, op.name)) continue;
      matched = true;
      if (pinned_to_[p] >= 0 && pinned_to_[p] != *device) {
        const std::string before =
            pin_of[p] == &data
                ? absl::StrFormat("is to run on %s, which has the training data (spec.data.clusters), and is pinned", data.device)
                : absl::StrFormat("is pinned to %s by '%s' and", pin_of[p]->device, pin_of[p]->ops);
        refusal = {plan_errors::kPinConflict, absl::StrFormat("op '%s' %s to %s by '%s'", op.name, before, pin.device, pin.ops), {}};
        return false;
      }
      pinned_to_[p] = *device;
      pin_of[p] = &pin;
    }
    if (!matched) {
      refusal = {plan_errors::kPinMatchesNoOp, absl::StrFormat("no op of the model matches the pin '%s'", pin.ops), {}};
      return false;
    }
  }
  next_pinned_.assign(n + 1, n);
  pin_run_end_.assign(n + 1, n);
  for (int p = n - 1; p >= 0; --p) {
    next_pinned_[p] = pinned_to_[p] >= 0 ? p : next_pinned_[p + 1];
    if (pinned_to_[p] >= 0) {
      const int next = next_pinned_[p + 1];
      pin_run_end_[p] = next < n && pinned_to_[next] == pinned_to_[p] ? pin_run_end_[next] : next;
    }
  }
  std::set<int> finished;
  for (int p = next_pinned_[0], before = p; p < n; before = p, p = pin_run_end_[p]) {
    if (finished.insert(pinned_to_[p]).second) continue;
    const bool data_first = pin_of[first_cut_ - 1] == &data && pinned_to_[p] == pinned_to_[first_cut_ - 1];
    refusal = {plan_errors::kPinConflict,
               absl::StrFormat(
                   "%s op '%s', which is pinned elsewhere: a device runs one stage of consecutive ops",
                   data_first ? absl::StrFormat("%s has the training data (spec.data.clusters), so it runs the first stage, and op '%s' "
                                                "is pinned to it behind",
                                                data.device, request_->ops[order_[p]].name)
                              : absl::StrFormat("ops pinned to %s stand before and after", request_->devices[pinned_to_[p]].name),
                   request_->ops[order_[before]].name),
               {}};
    return false;
  }
  return true;
}

bool Problem::Allowed(int begin, int end, int device) const {
  if (pinned_to_.empty()) return true;
  const int first = next_pinned_[begin];
  if (first >= end) return true;
  return pinned_to_[first] == device && pin_run_end_[first] >= end;
}

}  // namespace fusionllm::scheduler
