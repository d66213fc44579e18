// Notices stages and links that have become slower than their plan counted on, where the step suffers from it: a step that keeps the plan's
// prediction has nothing to warn of, however a device or a link does.
//
// Pure: fed step by step, no clock. A finding needs so many steps in a row, is reported once, and again only after the thing has recovered
// for as many steps; what hardly matters for the step is not reported at all. Steps in which a link was not measured count neither way;
// where there are as many in a row, a finding that was on its way is dropped. Not thread-safe.
//
// A stage straggles by comparison: what slows all stages down alike (a plan that was too hopeful, a busy machine under emulated devices) is
// no single device's fault. So a plan of one stage has no straggler.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace fusionllm::broker {

// One stage of a replica in one step.
struct StageLoad {
  std::string device;
  std::string place;      // for people: RunPlan::Describe of its rank
  double busy_s = 0;      // the device's own time; what an emulated device was late by, because its machine was busy, is not counted
  double expected_s = 0;  // by the plan; 0: unknown, then the stage is not judged
};

// One direction between two stages in one step.
struct LinkLoad {
  std::string src, dst;
  double bytes = 0;                // of the step
  double bytes_per_s = 0;          // measured in this step; 0: unknown, then the link is not judged
  double planned_bytes_per_s = 0;  // this pair's share
  // What messages of its size get of that, who wait for a round trip besides: what is measured is held against it. 0: all.
  double usual_bytes_per_s = 0;
};

struct StepTime {
  double seconds = 0;
  double predicted_s = 0;  // by the plan; 0: unknown, then any step suffers
};

struct Slowdown {
  enum class Kind : uint8_t { kStraggler, kLink };
  Kind kind = Kind::kStraggler;
  std::string device;   // the straggler, or the link's sender
  std::string peer;     // the link's receiver
  double measured = 0;  // seconds of a step, or bytes/s
  double planned = 0;
  bool recovered = false;
  std::string message;  // a sentence with the figures
};

class SlowdownDetector {
 public:
  struct Options {
    int steps = 5;                  // in a row, for a finding and for a recovery
    int warm_up_steps = 2;          // of a plan, not judged: connections and caches are cold
    double straggler_factor = 1.5;  // busy over expected, against the same of the other stages (their median, at least 1)
    double straggler_recovery = 1.2;
    double link_share = 0.6;  // measured over planned
    double link_recovery = 0.8;
    double min_share_of_step = 0.1;  // the time lost over the step's
    double min_step_slowdown = 1.2;  // a step's time over the predicted one; predictions are low by up to a fifth
  };
  SlowdownDetector() : SlowdownDetector(Options()) {}
  explicit SlowdownDetector(const Options& options) : options_(options) {}

  // One step of the plan in force, all of its stages and links. Returns what begins or ends with it.
  std::vector<Slowdown> Observe(const StepTime& step, std::span<const StageLoad> stages, std::span<const LinkLoad> links);

  // No finding is in force and none is on its way.
  bool quiet() const;
  bool any_slow() const;  // a finding is in force
  bool IsSlow(const std::string& device) const;
  bool IsSlow(const std::string& src, const std::string& dst) const;
  // Of the last step: busy over expected, against the other stages. 1 for devices that were not judged.
  double SlownessOf(const std::string& device) const;

 private:
  struct Subject {
    int streak = 0;   // steps in a row against the present state
    int unknown = 0;  // steps in a row in which it was not measured
    bool slow = false;
    double slowness = 1;
    // True when the state changes.
    bool Count(bool bad, bool good, int steps);
  };
  // Whether the step suffers, and so many seconds of it are much of why.
  bool Explains(double lost_s, const StepTime& step) const;
  void JudgeStages(const StepTime& step, std::span<const StageLoad> stages, std::vector<Slowdown>& found);
  void JudgeLink(const StepTime& step, const LinkLoad& link, std::vector<Slowdown>& found);

  Options options_;
  int steps_seen_ = 0;
  std::map<std::string, Subject> stages_;                         // by device
  std::map<std::pair<std::string, std::string>, Subject> links_;  // by sender, receiver
};

}  // namespace fusionllm::broker
