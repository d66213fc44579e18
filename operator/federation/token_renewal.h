// Keeps the tokens alive by which members are reached: those in Secrets with the label kubeapi::kRenewToken, and no others.
//
// When less than half of a token's life is left the member is asked, with the old one, for a new one, which goes into the hub's Secret if
// that is still the one that was read; its watch brings the new token to the member's connection. Only a process that may write does so.
// What cannot be renewed is reported, and tried again ever later; until it ends the old token is used on. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/kube/client/api_client.h"
#include "lib/kube/client/service_account_token.h"
#include "lib/kube/clock.h"
#include "lib/kube/queue/controller.h"
#include "lib/kubeapi/fusion_cluster.h"

namespace fusionllm::op::federation {

// What is reported of a member's token.
struct TokenFinding {
  bool managed = false;  // the Secret has the label, or is of an earlier `fusionctl cluster add`; all else is nothing if not
  bool renewed = false;
  std::string reason;  // CamelCase
  std::string message;
  bool operator==(const TokenFinding&) const = default;
};

class TokenRenewal {
 public:
  static constexpr absl::Duration kRecheck = absl::Hours(1);
  static constexpr absl::Duration kStandbyRecheck = absl::Minutes(1);
  // After a failure, and twice that after the next.
  static constexpr absl::Duration kMinRetry = absl::Seconds(30), kMaxRetry = absl::Minutes(10);
  // A member says how long its tokens live: that must not make the hub write without end.
  static constexpr absl::Duration kMinInterval = absl::Minutes(5);

  // `ns`: of the operator, where the Secrets are. `may_write` is asked before anything is done; neither it nor `on_change`, which is called
  // when what Of() says has changed, blocks. All must outlive it.
  TokenRenewal(std::string ns, kube::ApiClient& hub, kube::Clock& clock, std::function<absl::Status()> may_write,
               std::function<void(const std::string& cluster)> on_change);

  // One look at the token of a member, and a new one if it is time; when to look again. `kubeconfig` is what `member` was made of: while
  // the Secret has another nothing is done. Blocks. One call at a time for each cluster.
  kube::ReconcileResult Reconcile(const std::string& cluster, const kubeapi::KubeConfigSource& source, const std::string& kubeconfig,
                                  kube::ApiClient& member, const std::stop_token& stop);
  // By the last look; nothing: there was none.
  std::optional<TokenFinding> Of(const std::string& cluster) const;
  void Forget(const std::string& cluster);

 private:
  struct State {
    std::optional<TokenFinding> finding;
    int failures = 0;  // one after the other
    absl::Duration written_at = -absl::InfiniteDuration();
  };
  struct Registered;  // the Secret as it was read

  kube::ReconcileResult Renew(const std::string& cluster, const Registered& registered, kube::ApiClient& member,
                              const std::stop_token& stop);
  absl::StatusOr<std::string> NewToken(const Registered& registered, kube::ApiClient& member, const std::stop_token& stop) const;
  absl::Status Write(const Registered& registered, const std::string& token, const std::stop_token& stop);
  kube::ReconcileResult Failed(const std::string& cluster, const kube::ServiceAccountToken& token, const absl::Status& why);
  void Report(const std::string& cluster, TokenFinding finding);

  const std::string ns_;
  kube::ApiClient& hub_;
  kube::Clock& clock_;
  const std::function<absl::Status()> may_write_;
  const std::function<void(const std::string& cluster)> on_change_;
  mutable base::Mutex mutex_;
  std::map<std::string, State> states_ ABSL_GUARDED_BY(mutex_);  // by cluster
};

}  // namespace fusionllm::op::federation
