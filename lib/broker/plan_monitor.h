// Watches the plan in force: gathers what its stages report of each step, tells what is slow, and judges other plans.
//
// Pure: events in, findings out. Begin() starts over with each plan epoch. Limits: steps whose stages have not all reported are kept for
// kMaxOpenSteps. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lib/broker/events.h"
#include "lib/broker/migration.h"
#include "lib/broker/slowdown_detector.h"

namespace fusionllm::broker {

class PlanMonitor {
 public:
  static constexpr int kMaxOpenSteps = 64;
  static constexpr int kConsultationSteps = 20;  // between two questions to the scheduler while something is slow
  static constexpr int kConfirmationSteps = 5;   // before the second of two questions that must agree

  using LinkSet = std::set<std::pair<std::string, std::string>>;  // of links: from, to

  // What the plan counts on from one device to another, by whatever was measured between their sites; a rate of 0: unknown.
  struct LinkFigures {
    double bytes_per_s = 0, rtt_s = 0;
  };
  using FiguresOf = std::function<LinkFigures(const std::string& src, const std::string& dst)>;
  // Two links that share one physical link, by their devices.
  using SharesLink = std::function<bool(const std::pair<std::string, std::string>&, const std::pair<std::string, std::string>&)>;
  void Begin(const RunPlan& plan, const FiguresOf& figures_of, const SharesLink& shares_link);

  // In any order; a step is judged when all of its parts are there.
  std::vector<Slowdown> On(const StageMeasured& event);
  std::vector<Slowdown> OnStep(int64_t step, double step_seconds);

  // True when something is slow, or the run has late joiners to weigh and knows what its steps take, and it is time to ask for another
  // plan; the asking is then noted.
  bool AsksForAlternative(int64_t last_step, bool late_joiners = false);

  // Judges a plan that was made from the newest measurements. kMove only twice in a row.
  MigrationPolicy::Decision DecideMigration(const RunPlan& other, int64_t last_step, int64_t total_steps, double move_s,
                                            std::string* figures);

  // The planner was asked and knows nothing that is worth a move: what was found before counts no more.
  void ResetMigration() {
    policy_.Reset();
    weighs_late_joiners_ = false;
  }
  // As a planner must know it to weigh a move that costs move_s.
  CurrentPlan CurrentPlanAt(int64_t last_step, int64_t total_steps, double move_s) const;

  // Links of the plan that send enough for the rate they get to be that of their shared link.
  const LinkSet& representative_links() const { return representative_; }

  bool any_slow() const { return detector_.any_slow(); }
  // Devices that now take so many times as long as the plan in force counts on; without those that are well.
  std::map<std::string, double> Slowness() const;
  // Links of the plan that are slow: the rate of the whole shared link, from what this pair got of it.
  std::map<std::pair<std::string, std::string>, double> SlowLinks() const;
  bool AnyStraggler() const { return !Slowness().empty(); }

 private:
  struct OpenStep {
    double step_seconds = -1;
    std::map<std::string, StageMeasured> stages;  // by device
  };
  struct WatchedLink {
    std::string src, dst;
    double bytes = 0;
    double message_bytes = 0;         // of the smallest sort of its messages, bytes over micro-batches; 0: not known
    double usual_bytes_per_s = 0;     // LinkLoad
    double planned_bytes_per_s = 0;   // this pair's share; 0: what it measures says little, and is not judged
    int sharers = 0;                  // of its shared link, itself among them
    double measured_bytes_per_s = 0;  // the newest
    int64_t samples = 0;
  };
  std::vector<Slowdown> JudgeWhole(int64_t step);
  double PredictionBias() const;

  RunPlan plan_;
  SlowdownDetector detector_;
  MigrationPolicy policy_;
  std::vector<WatchedLink> links_;
  LinkSet representative_;
  std::map<int64_t, OpenStep> open_;
  int64_t judged_step_ = 0;
  std::deque<double> recent_s_;  // seconds of the newest steps
  std::deque<double> well_s_;    // of the newest steps while nothing was slow
  int64_t next_question_ = 0;
  bool weighs_late_joiners_ = false;  // a question about them has no last answer yet: what was found counts without a slowdown
};

}  // namespace fusionllm::broker
