// Who a member is, and what it says of itself: asked on a worker of that member's own, so that one that hangs holds up no other.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/kube/client/api_client.h"
#include "lib/kube/clock.h"

namespace fusionllm::op::federation {

// The UID of a namespace that every cluster has, and that goes with the cluster alone; empty: this one has no such namespace. Blocks, at
// most for `call`'s timeout. Errors: those of `api`, Internal where the answer makes no sense.
absl::StatusOr<std::string> ReadClusterUid(kube::ApiClient& api, const kube::CallOptions& call = {});

struct MemberFacts {
  std::string uid;                   // ReadClusterUid()
  std::string version;               // of its API server; empty: it did not say
  std::vector<std::string> apis;     // of kOptionalGroups those that it serves, "GROUP/VERSION"
  std::optional<bool> healthy;       // whether it calls itself ready; nothing: it did not say
  std::string health;                // what it says of itself if not
  std::optional<bool> synced;        // its clock with ours; nothing: it does not say
  std::string clock;                 // how they differ if not
  std::vector<std::string> missing;  // rights that jobs need there and we do not have: "create pods in namespace team"
  bool operator==(const MemberFacts&) const = default;
};

// Thread-safe, one Run() at a time.
class MemberCheck {
 public:
  static constexpr absl::Duration kCallTimeout = absl::Seconds(10);
  static constexpr absl::Duration kClockTolerance = absl::Seconds(5);
  static constexpr absl::Duration kVersionEvery = absl::Minutes(10);
  // What we may do is asked by writes of a kind, if of nothing that is kept: once, when there are jobs in other namespaces, and while
  // something is missing.
  static constexpr absl::Duration kPermissionRecheckPeriod = absl::Minutes(1);

  // Of jobs with a part in the member.
  using Namespaces = std::function<std::set<std::string>()>;

  // Both must outlive it. `namespaces`: null: rights are not asked for.
  MemberCheck(kube::ApiClient& api, kube::Clock& clock, Namespaces namespaces = nullptr)
      : api_(api), clock_(clock), namespaces_(std::move(namespaces)) {}

  // Asks for what is due, who it is each time; what we may do there only with `rights`. Blocks. An error: it did not say who it is, and
  // what was known before stays.
  absl::Status Run(const std::stop_token& stop, bool rights = true);
  // Null: it has never said who it is.
  std::shared_ptr<const MemberFacts> Facts() const;
  // What the last Run() came to; Unavailable before the first.
  absl::Status LastStatus() const;

 private:
  void FetchHealth(const kube::CallOptions& call, MemberFacts& facts) const;
  void FetchVersions(const kube::CallOptions& call, MemberFacts& facts);
  void CheckClock(MemberFacts& facts) const;
  void ReviewPermissions(const kube::CallOptions& call, MemberFacts& facts);

  kube::ApiClient& api_;
  kube::Clock& clock_;
  const Namespaces namespaces_;
  // Of Run() alone.
  absl::Duration versions_at_ = -absl::InfiniteDuration(), rights_at_;
  std::optional<std::set<std::string>> reviewed_;  // namespaces
  mutable base::Mutex mutex_;
  absl::Status last_status_ ABSL_GUARDED_BY(mutex_) = absl::UnavailableError("not asked yet who it is");
  std::shared_ptr<const MemberFacts> facts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fusionllm::op::federation
