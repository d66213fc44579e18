// A cluster for load tests: an API server in memory behind TLS on a port of this machine, and a kubelet that takes Pods through their life.
//
// The kubelet binds each new Pod to a node, calls it Running and ready, and takes it away when it has been deleted. It speaks to the server
// in memory, so that it goes on where the front is frozen, as kubelets of a cluster do that only the operator cannot reach. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/mutex.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_http_server.h"
#include "lib/kube/watch/informer.h"
#include "lib/security/certificate_authority.h"

namespace fusionllm::load {

// Where brokers of simulated jobs show their progress: their port is fixed, so it is an address of this machine that belongs to this
// process.
std::string BrokerAddress();
inline constexpr char kNamespace[] = "training";
inline constexpr char kData[] = "text";  // ConfigMap of the jobs' data, in each cluster

struct LivePod {
  std::string name;
  std::string attempt;  // of an executor: "JOB 2"
};

class SimCluster {
 public:
  SimCluster(std::string name, const security::CertificateAuthority& authority);
  ~SimCluster();

  const std::string& name() const { return name_; }
  // With a token of its own.
  std::string Kubeconfig() const;
  std::string Token() const { return absl::StrCat("token-of-", name_, "-x7Kq"); }
  kube::ApiClient& admin() { return client_; }  // not over the network
  kube::testing::FakeApiServer& server() { return server_; }
  kube::testing::FakeHttpServer& front() { return front_; }

  // Pods that the kubelet has called Running, and of which it does not know yet that they have ended or are being deleted.
  int RunningPods() const;
  // Of the API server's own clock, when the kubelet last called a Pod Running.
  absl::Duration LastStart() const;
  // How many Pods the kubelet has called Running.
  int Starts() const;
  // That have not ended.
  std::vector<LivePod> LivePods() const;
  // Pods that came while another of the same job, role and index had not ended, each with that one: "NAME beside NAME". One that was
  // deleted by force has not, until its kubelet has ended it: it never learns of it here.
  std::vector<std::string> DuplicatePods() const;
  // While it is away its API server cannot be reached, and its kubelet goes on.
  void SetAway(bool away);
  // Ends a Pod's main container.
  absl::Status EndPod(const std::string& pod, const std::string& container, int exit_code, const std::string& message);

 private:
  std::string NodeName() const { return name_ + "-node"; }
  void NoteDuplicates(const std::string& uid, const LivePod& pod, bool live) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunKubelet(const kube::InformerEvent& event);
  // False: it is gone, though another one may have its name.
  bool Patch(const kube::ObjectMeta& pod, nlohmann::json patch, const std::string& subresource);

  const std::string name_;
  const std::string ca_pem_;
  kube::testing::FakeApiServer server_;
  kube::testing::FakeHttpServer front_;
  kube::RestClient client_;
  kube::ApiClient& admin_ = client_;
  mutable base::Mutex mutex_;
  std::set<std::string> running_ ABSL_GUARDED_BY(mutex_);  // uids
  // Pods that have not ended by uid, by what they have in common but the attempt.
  std::map<std::string, std::map<std::string, LivePod>> live_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> ended_ ABSL_GUARDED_BY(mutex_);  // uids of those that the kubelet has ended
  std::vector<std::string> duplicates_ ABSL_GUARDED_BY(mutex_);
  int starts_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration last_start_ ABSL_GUARDED_BY(mutex_);
  kube::Informer kubelet_;  // last: its thread uses the rest
};

}  // namespace fusionllm::load
