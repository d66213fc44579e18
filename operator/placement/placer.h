// Places jobs on the clusters that there are, one after the other, so that no two count on the same room. Thread-safe; does not block but
// for its turn.
#pragma once

#include <mutex>

#include "operator/members/member.h"
#include "operator/placement/placement.h"
#include "operator/placement/reservations.h"
#include "operator/placement/survey.h"

namespace fusionllm::op {

class Placer {
 public:
  // Both must outlive it.
  Placer(const Member& hub, const Members& members) : hub_(hub), members_(members) {}

  // How long what is said of a shortage may be old: amounts that are free change all the time, and each change would be a write.
  static constexpr absl::Duration kSayAgainAfter = absl::Seconds(30);

  // Where the job's executors would go now. With `hold` what it takes is kept from others until its pods are there.
  Placement Propose(const SurveyRequest& request, bool hold);

 private:
  // Says again what was said a moment ago, if it is of the same kind.
  void KeepWords(const SurveyRequest& request, Placement& placement);

  const Member& hub_;
  const Members& members_;
  std::mutex mutex_;
  Reservations reservations_;
  struct Said {
    std::string problem, shortage;
    absl::Time at;
  };
  std::map<std::string, Said> said_;  // by job uid
};

}  // namespace fusionllm::op
