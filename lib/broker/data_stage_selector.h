// Who of those that have the training data reads it. A question to the planner names one, and the answer holds for that one alone, so that
// it is asked about one after the other: about the next where one is refused, and, where nothing runs yet that would wait meanwhile, about
// all of the best for the shortest step.
//
// Pure: answers in, questions out; the same answers lead to the same choice. Limits: kMaxCompared questions once there is a plan; while
// all are refused, one for each reader, for a run that is possible must not fail. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/broker/events.h"

namespace fusionllm::broker {

class DataStageSelector {
 public:
  static constexpr size_t kMaxCompared = 4;

  struct Reader {
    std::string name, site;
    int priority = 0;       // one of a lower priority is asked about only where all of the higher ones are refused
    bool is_extra = false;  // a spare, say: it is among the devices of the question about itself alone
  };
  enum class Objective : uint8_t { kAnyPlan, kShortestStep };

  DataStageSelector() = default;
  // Readers of one priority are asked about in the order given, but one of each site before a second one of any: what ails a device, its
  // memory or its links, mostly ails its neighbours. Without readers the question is asked once, as it is.
  DataStageSelector(RequestPlan request, std::vector<Reader> readers, Objective objective);

  // The next question; none when nothing is left to ask.
  std::optional<RequestPlan> Next();
  // The answer to the last one. A refusal without a reason, kSchedulerFailed, and what is said of the job whichever reads, end the asking.
  void Planned(RunPlan plan);
  void Refused(std::string reason, std::string message);

  // This one is there no more: it is not asked about, unless it was. What was answered stays.
  void Lost(const std::string& name);

  bool has_plan() const { return chosen_.has_value(); }
  const RunPlan& plan() const { return chosen_->plan; }                       // has_plan()
  const RequestPlan& request() const { return chosen_->request; }             // which it answers; has_plan()
  const std::string& reader() const { return chosen_->request.data_device; }  // has_plan()
  std::string DescribeChoice() const;  // of the choice, for people; has_plan(). Empty where there was none to make

  // When all were refused.
  std::string RefusalReason() const;
  std::string RefusalMessage() const;

 private:
  struct Answer {
    std::string reader;
    double step_s = 0;            // of a plan; 0: unknown
    std::string reason, message;  // of a refusal
    bool refused = false;
  };
  struct Chosen {
    RequestPlan request;
    RunPlan plan;
    int priority = 0;
  };
  std::string NotAskedAbout() const;

  RequestPlan request_, last_;
  std::vector<Reader> readers_;
  Objective objective_ = Objective::kAnyPlan;
  size_t asked_ = 0;
  bool settled_ = false;
  std::vector<Answer> answers_;
  std::optional<Chosen> chosen_;
};

}  // namespace fusionllm::broker
