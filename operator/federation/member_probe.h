// Who a member is, and what it says of itself: asked on a worker of that member's own, so that one that hangs holds up no other.
#pragma once

#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/kube/client/api_client.h"
#include "lib/kube/clock.h"

namespace fusionllm::op {

// The UID of a namespace that every cluster has, and that goes with the cluster alone; empty: this one has no such namespace. Blocks, at
// most for `call`'s timeout. Errors: those of `api`, Internal where the answer makes no sense.
absl::StatusOr<std::string> ReadClusterUid(kube::ApiClient& api, const kube::CallOptions& call = {});

struct MemberFacts {
  std::string uid;      // ReadClusterUid()
  std::string version;  // of its API server; empty: it did not say
  bool operator==(const MemberFacts&) const = default;
};

// Thread-safe, one Ask() at a time.
class MemberProbe {
 public:
  static constexpr absl::Duration kCallTimeout = absl::Seconds(10);
  static constexpr absl::Duration kVersionEvery = absl::Minutes(10);

  // Both must outlive it.
  MemberProbe(kube::ApiClient& api, kube::Clock& clock) : api_(api), clock_(clock) {}

  // Asks for what is due, who it is each time. Blocks. An error: it did not say who it is, and what was known before stays.
  absl::Status Ask(const std::stop_token& stop);
  // Null: it has never said who it is.
  std::shared_ptr<const MemberFacts> Facts() const;
  // What the last Ask() came to; Unavailable before the first.
  absl::Status Answer() const;

 private:
  kube::ApiClient& api_;
  kube::Clock& clock_;
  absl::Duration version_at_ = -absl::InfiniteDuration();  // of Ask() alone
  mutable std::mutex mutex_;
  absl::Status answer_ = absl::UnavailableError("not asked yet who it is");
  std::shared_ptr<const MemberFacts> facts_;
};

}  // namespace fusionllm::op
