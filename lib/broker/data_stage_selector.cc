#include "lib/broker/data_stage_selector.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/broker/migration.h"
#include "lib/scheduler/plan_error_reasons.h"

namespace fusionllm::broker {
namespace {

double CostSeconds(const RunPlan& plan) { return SecondsToEqualLoss(plan.plan.predicted_step_seconds, LossCost(plan)); }

// First those of a priority that are the first of their site, then the second.
void Interleave(std::vector<DataStageSelector::Reader>& readers) {
  std::stable_sort(readers.begin(), readers.end(), [](const auto& a, const auto& b) { return a.priority > b.priority; });
  std::map<std::pair<int, std::string>, int> seen;
  std::vector<std::pair<std::pair<int, int>, DataStageSelector::Reader>> placed;
  for (DataStageSelector::Reader& reader : readers) {
    const int before = seen[{reader.priority, reader.site}]++;
    placed.emplace_back(std::pair{-reader.priority, before}, std::move(reader));
  }
  std::stable_sort(placed.begin(), placed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < placed.size(); ++i) readers[i] = std::move(placed[i].second);
}

}  // namespace

DataStageSelector::DataStageSelector(RequestPlan request, std::vector<Reader> readers, Objective objective)
    : request_(std::move(request)), readers_(std::move(readers)), objective_(objective) {
  if (readers_.empty()) readers_.push_back({.name = request_.data_device});
  Interleave(readers_);
}

std::optional<RequestPlan> DataStageSelector::Next() {
  if (settled_ || asked_ == readers_.size()) return std::nullopt;
  const Reader& reader = readers_[asked_];
  if (chosen_.has_value() && (objective_ == Objective::kAnyPlan || reader.priority != chosen_->priority || asked_ >= kMaxCompared))
    return std::nullopt;
  ++asked_;
  last_ = request_;
  last_.data_device = reader.name;
  if (reader.is_extra) {
    last_.devices.insert(std::upper_bound(last_.devices.begin(), last_.devices.end(), reader.name), reader.name);
  }
  return last_;
}

void DataStageSelector::Planned(RunPlan plan) {
  answers_.push_back({.reader = last_.data_device, .step_s = plan.plan.predicted_step_seconds});
  // Of two that are about equal the one that was asked about first, or noise in the measurements would choose.
  const double cost_s = CostSeconds(plan);
  if (chosen_.has_value() && !(cost_s > 0 && cost_s < (1 - kMinImprovement) * CostSeconds(chosen_->plan))) return;
  chosen_ = Chosen{.request = last_, .plan = std::move(plan), .priority = readers_[asked_ - 1].priority};
}

void DataStageSelector::Refused(std::string reason, std::string message) {
  // Of a reason that might be cured a question too many costs seconds.
  settled_ = reason.empty() || reason == kSchedulerFailed || scheduler::plan_errors::HoldsForAnyDataStage(reason);
  answers_.push_back({.reader = last_.data_device, .reason = std::move(reason), .message = std::move(message), .refused = true});
}

void DataStageSelector::Lost(const std::string& name) {
  readers_.erase(std::remove_if(readers_.begin() + static_cast<ptrdiff_t>(asked_), readers_.end(),
                                [&](const Reader& reader) { return reader.name == name; }),
                 readers_.end());
}

std::string DataStageSelector::NotAskedAbout() const {
  // Those of a lower priority were no choice, and while all were refused each was asked about.
  const auto left = std::count_if(readers_.begin() + static_cast<ptrdiff_t>(asked_), readers_.end(),
                                  [&](const Reader& reader) { return chosen_.has_value() && reader.priority == chosen_->priority; });
  return left == 0 ? "" : absl::StrFormat("; %d more %s not asked about", left, left == 1 ? "was" : "were");
}

std::string DataStageSelector::DescribeChoice() const {
  if (answers_.size() < 2) return "";
  const double step_s = chosen_->plan.plan.predicted_step_seconds;
  std::string account = absl::StrCat(reader(), " reads the data", step_s > 0 ? absl::StrFormat(": %.3g s a step expected", step_s) : "");
  for (const Answer& answer : answers_) {
    if (answer.reader == reader()) continue;
    if (answer.refused) {
      absl::StrAppend(&account, "; not ", answer.reader, ": ", answer.reason, answer.reason.empty() ? "" : ": ", answer.message);
    } else {
      absl::StrAppend(&account, "; with ", answer.reader, " instead ", absl::StrFormat("%.3g s", answer.step_s));
    }
  }
  return absl::StrCat(account, NotAskedAbout());
}

std::string DataStageSelector::RefusalReason() const {
  if (answers_.empty()) return "";
  return answers_.back().reason == kSchedulerFailed ? kSchedulerFailed : answers_.front().reason;
}

std::string DataStageSelector::RefusalMessage() const {
  if (answers_.empty()) return "";
  if (answers_.size() == 1 || answers_.back().reason.empty()) return answers_.back().message;
  std::string message = "no plan with any of those that have the training data";
  std::string last;
  for (const Answer& answer : answers_) {
    absl::StrAppend(&message, answer.reader == answers_.front().reader ? ": " : "; ", answer.reader, ": ",
                    answer.message == last ? "the same" : answer.message);
    last = answer.message;
  }
  return absl::StrCat(message, NotAskedAbout());
}

}  // namespace fusionllm::broker
