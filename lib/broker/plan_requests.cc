#include "lib/broker/plan_requests.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/pluralize.h"
#include "lib/broker/timeouts.h"

namespace fusionllm::broker {

PlanRequests::PlanRequests(const RunOptions& options)
    : data_devices_(options.data_devices),
      micro_batch_size_(options.micro_batch_size),
      min_stages_(options.stages_asked),
      min_executors_(options.executors_asked) {}

RequestPlan PlanRequests::Compose(bool with_spares, const std::map<std::string, double>& slowness, const std::string& codec_limit,
                                  const PlanEpoch& epoch, const ExecutorSet& executors) {
  const RunPlan& plan = epoch.plan();
  RequestPlan ask{.after_loss = epoch.number() > 0,
                  .micro_batch_size = plan.plan.micro_batch_size > 0 ? plan.plan.micro_batch_size : micro_batch_size_,
                  .codec_limit = codec_limit,
                  .slowness = slowness_};
  for (const auto& [name, executor] : executors.present()) {
    if (!executor.spare || with_spares || plan.Uses(name)) ask.devices.push_back(name);
  }
  for (const auto& [device, factor] : slowness) {
    double& known = ask.slowness.try_emplace(device, 1).first->second;
    known = std::max(1.0, known * factor);
  }
  slowness_asked_ = ask.slowness;
  return ask;
}

void PlanRequests::Select(RequestPlan request, DataStageSelector::Objective objective, const std::map<std::string, double>& slowness,
                          const PlanEpoch& epoch, const ExecutorSet& executors, const Measurement& measurement) {
  std::vector<DataStageSelector::Reader> readers = ReadersFor(request, slowness, epoch, executors, measurement);
  // None of those who have the data may train, which the planner says of any of them.
  if (readers.empty() && !data_devices_.empty()) request.data_device = *data_devices_.begin();
  selector_ = DataStageSelector(std::move(request), std::move(readers), objective);
}

// That of the first stage as it is, unless it has become slow, else rather one that is no spare; last of all spares that the question
// leaves out. Of a device that joined meanwhile, and was not measured, the planner knows nothing.
std::vector<DataStageSelector::Reader> PlanRequests::ReadersFor(const RequestPlan& request, const std::map<std::string, double>& slowness,
                                                                const PlanEpoch& epoch, const ExecutorSet& executors,
                                                                const Measurement& measurement) const {
  std::vector<DataStageSelector::Reader> readers;
  for (const auto& [name, executor] : executors.present()) {
    if (!executors.HasData(name) || !executors.MayTrain(executor) || !measurement.Knows(name)) continue;
    DataStageSelector::Reader reader{.name = name, .site = executor.site};
    const int rank = epoch.plan().RankOf(name);
    if (std::find(request.devices.begin(), request.devices.end(), name) == request.devices.end()) {
      reader.is_extra = true;
    } else if (slowness.contains(name)) {
      reader.priority = 1;
    } else {
      const bool reads = rank >= 0 && epoch.plan().StageOf(rank) == 0;
      reader.priority = reads ? 4 : executor.spare ? 2 : 3;
    }
    readers.push_back(std::move(reader));
  }
  return readers;
}

void PlanRequests::BeginPlanning() {
  state_ = State::kPlan;
  joined_since_asked_ = false;
}

bool PlanRequests::AskNext(ActionQueue& queue) {
  std::optional<RequestPlan> ask = selector_.Next();
  if (!ask.has_value()) return false;
  queue.ArmTimer(has_plan() ? kComparisonSeconds : kPlanSeconds, "the scheduler");
  ask->id = ++asked_;
  queue.Push(*std::move(ask));
  return true;
}

// What the plan promises was said of the devices that were lost; the stages stay what they are.
void PlanRequests::AskForFigures(RequestPlan request, const RunPlan& plan, ActionQueue& queue) {
  state_ = State::kFigures;
  queue.ArmTimer(kFiguresSeconds, "the scheduler");
  request.id = ++asked_;
  request.after_loss = true;
  request.devices = plan.devices;
  if (!data_devices_.empty()) request.data_device = plan.devices[0];
  request.current_plan = CurrentPlan{.document = plan.document, .devices = plan.devices};
  request.figures_only = true;
  queue.Push(std::move(request));
}

std::optional<RequestPlan> PlanRequests::NextAlternative(const ExecutorSet& executors, const Measurement& measurement) {
  std::optional<RequestPlan> ask = selector_.Next();
  if (!ask.has_value()) return std::nullopt;
  std::erase_if(ask->devices, [&](const std::string& name) { return !executors.IsPresent(name); });  // lost since the question before
  NoteAsked(*ask, executors, measurement);
  return ask;
}

// Read by what is taken of the answer.
void PlanRequests::NoteAsked(const RequestPlan& request, const ExecutorSet& executors, const Measurement& measurement) {
  devices_asked_ = request.devices;
  std::erase_if(devices_asked_, [&](const std::string& name) { return !measurement.Knows(name); });
  executors_asked_ = static_cast<int>(std::count_if(devices_asked_.begin(), devices_asked_.end(),
                                                    [&](const std::string& name) { return executors.MayTrain(executors.at(name)); }));
}

RunPlan PlanRequests::Selected(const ExecutorSet& executors, const Measurement& measurement) {
  NoteAsked(selector_.request(), executors, measurement);
  RunPlan plan = selector_.plan();
  SetExecutors(plan, executors);
  return plan;
}

void PlanRequests::SetExecutors(RunPlan& plan, const ExecutorSet& executors) const {
  plan.executors = executors_asked_;
  plan.desired_executors = executors.DesiredExecutors();
}

void PlanRequests::EmitDataStageSelected(int64_t last_step, ActionQueue& queue) const {
  std::string account = selector_.DescribeChoice();
  if (account.empty()) return;
  queue.Push(EmitEvent{.reason = "DataStageSelected", .step = last_step, .message = std::move(account), .device = selector_.reader()});
}

std::string PlanRequests::Describe(const RunPlan& taken, const RunPlan& before, const std::string& why,
                                   const ExecutorSet& executors) const {
  // No plan with that of the run fitted the memory that is left.
  const int64_t size_before = before.plan.micro_batch_size > 0 ? before.plan.micro_batch_size : micro_batch_size_;
  const int64_t size = taken.plan.micro_batch_size;
  std::string other_size;
  if (size_before > 0 && size > 0 && size != size_before) {
    other_size = absl::StrFormat(", with micro-batches of %d instead of %d, which no longer fit: losses have other bits from here on", size,
                                 size_before);
  }
  return absl::StrCat(taken.plan.replicas > 1 ? absl::StrCat(taken.plan.replicas, " replicas of ") : "",
                      base::Pluralize(taken.stages(), "stage"), " on ", absl::StrJoin(taken.devices, ", "), other_size,
                      why.empty() ? "" : ": ", why, LessThanAskedFor(taken, executors));
}

// "; fewer stages than spec.strategy.stages, 2, asks for, since executors were lost"; empty: the plan has what was asked for.
std::string PlanRequests::LessThanAskedFor(const RunPlan& plan, const ExecutorSet& executors) const {
  std::vector<std::string> less;
  if (plan.stages() < min_stages_) less.push_back(absl::StrCat("stages than spec.strategy.stages, ", min_stages_, ","));
  if (executors.CountNonSpares() < min_executors_) less.push_back(absl::StrCat("executors than spec.executors.min, ", min_executors_, ","));
  if (less.empty()) return "";
  return absl::StrCat("; fewer ", absl::StrJoin(less, " and fewer "), less.size() > 1 ? " ask for" : " asks for",
                      ", since executors were lost");
}

}  // namespace fusionllm::broker
