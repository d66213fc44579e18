#include "lib/broker/reader_choice.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/broker/migration.h"
#include "lib/scheduler/refusal_reasons.h"

namespace fusionllm::broker {
namespace {

double CostSeconds(const PlanSummary& plan) { return SecondsToEqualLoss(plan.predicted_step_s, LossCost(plan)); }

// First those of a rank that are the first of their site, then the second.
void Interleave(std::vector<ReaderChoice::Reader>& readers) {
  std::stable_sort(readers.begin(), readers.end(), [](const auto& a, const auto& b) { return a.rank > b.rank; });
  std::map<std::pair<int, std::string>, int> seen;
  std::vector<std::pair<std::pair<int, int>, ReaderChoice::Reader>> placed;
  for (ReaderChoice::Reader& reader : readers) {
    const int before = seen[{reader.rank, reader.site}]++;
    placed.emplace_back(std::pair{-reader.rank, before}, std::move(reader));
  }
  std::stable_sort(placed.begin(), placed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < placed.size(); ++i) readers[i] = std::move(placed[i].second);
}

}  // namespace

ReaderChoice::ReaderChoice(AskPlan question, std::vector<Reader> readers, Wish wish)
    : question_(std::move(question)), readers_(std::move(readers)), wish_(wish) {
  if (readers_.empty()) readers_.push_back({.name = question_.data_device});
  Interleave(readers_);
}

std::optional<AskPlan> ReaderChoice::Next() {
  if (settled_ || asked_ == readers_.size()) return std::nullopt;
  const Reader& reader = readers_[asked_];
  if (chosen_.has_value() && (wish_ == Wish::kAnyPlan || reader.rank != chosen_->rank || asked_ >= kMostCompared)) return std::nullopt;
  ++asked_;
  last_ = question_;
  last_.data_device = reader.name;
  if (reader.is_extra) {
    last_.devices.insert(std::upper_bound(last_.devices.begin(), last_.devices.end(), reader.name), reader.name);
  }
  return last_;
}

void ReaderChoice::Planned(PlanSummary plan) {
  answers_.push_back({.reader = last_.data_device, .step_s = plan.predicted_step_s});
  // Of two that are about equal the one that was asked about first, or noise in the measurements would choose.
  const double cost_s = CostSeconds(plan);
  if (chosen_.has_value() && !(cost_s > 0 && cost_s < (1 - kLeastGain) * CostSeconds(chosen_->plan))) return;
  chosen_ = Chosen{.question = last_, .plan = std::move(plan), .rank = readers_[asked_ - 1].rank};
}

void ReaderChoice::Refused(std::string reason, std::string message) {
  // Of a reason that might be cured a question too many costs seconds.
  settled_ = reason.empty() || reason == kSchedulerFailed || scheduler::refusals::HoldsWhoeverReads(reason);
  answers_.push_back({.reader = last_.data_device, .reason = std::move(reason), .message = std::move(message), .refused = true});
}

void ReaderChoice::Lost(const std::string& name) {
  readers_.erase(std::remove_if(readers_.begin() + static_cast<ptrdiff_t>(asked_), readers_.end(),
                                [&](const Reader& reader) { return reader.name == name; }),
                 readers_.end());
}

std::string ReaderChoice::NotAskedAbout() const {
  // Those of a lower rank were no choice, and while all were refused each was asked about.
  const auto left = std::count_if(readers_.begin() + static_cast<ptrdiff_t>(asked_), readers_.end(),
                                  [&](const Reader& reader) { return chosen_.has_value() && reader.rank == chosen_->rank; });
  return left == 0 ? "" : absl::StrFormat("; %d more %s not asked about", left, left == 1 ? "was" : "were");
}

std::string ReaderChoice::Account() const {
  if (answers_.size() < 2) return "";
  const double step_s = chosen_->plan.predicted_step_s;
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

std::string ReaderChoice::RefusalReason() const {
  if (answers_.empty()) return "";
  return answers_.back().reason == kSchedulerFailed ? kSchedulerFailed : answers_.front().reason;
}

std::string ReaderChoice::RefusalMessage() const {
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
