// A hub and a member, each an API server in memory, with an operator that can die at a request to either. Header-only.
#pragma once

#include <memory>
#include <string>
#include <tuple>

#include "operator/controller/testing/reconcile_fixture.h"

namespace fusionllm::op::controller::testing {

// The hub, and a member in Tokyo.
class TwoClustersTest : public JobReconcilerTest {
 protected:
  TwoClustersTest() {
    auto transport = std::make_shared<CrashingTransport>(tokyo_server_.NewTransport());
    tokyo_transport_ = transport.get();
    tokyo_writes_ = NewClient(std::move(transport));
    tokyo_client_ = NewClient(tokyo_server_.NewTransport());
    AddData(*tokyo_client_);
    tokyo_ = std::make_shared<DirectMember>(*tokyo_client_, "tokyo");
    members_.remote_ = {std::make_shared<WritingMember>(*tokyo_, *tokyo_writes_)};
  }
  kube::ReconcileResult ReconcileTokyo() { return reconciler_->Reconcile({"tokyo", "default", "train"}, {}); }
  // Both parts, until nothing changes.
  void SettleBoth() {
    int quiet = 0;  // rounds; what happens to pods is seen in the round after
    for (int i = 0; i < 20; ++i) {
      const auto before = std::make_tuple(server_.objects(), tokyo_server_.objects(), Job());
      (void)Reconcile();
      SimulateCluster();
      (void)ReconcileTokyo();
      PlayTokyo();
      quiet = std::make_tuple(server_.objects(), tokyo_server_.objects(), Job()) == before ? quiet + 1 : 0;
      if (quiet == 2) return;
    }
    FAIL() << "it does not settle";
  }
  void PlayTokyo() {
    if (tokyo_balances_) GiveLoadBalancers(*tokyo_client_, "198.51.100");
    const json pods = json::parse(tokyo_client_->List(manifests::kPods, "default").value());
    for (const json& pod : pods["items"]) {
      const kube::ObjectKey key{"default", pod["metadata"]["name"]};
      if (pod["metadata"].contains("deletionTimestamp")) {
        (void)tokyo_client_->Delete(manifests::kPods, key, {.grace_period_seconds = 0});
      } else if (!pod.contains("status") || !pod["status"].contains("podIP")) {
        const json status = {{"phase", "Running"}, {"podIP", "10.9.0.1"}, {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}};
        (void)tokyo_client_->Patch(manifests::kPods, key, kube::PatchType::kMerge, json{{"status", status}}.dump(),
                                   {.subresource = "status"});
      }
    }
  }
  json TokyoPod(const std::string& name) { return json::parse(tokyo_client_->Get(manifests::kPods, {"default", name}).value_or("{}")); }
  void Submit2() {
    json job = JobObject();
    job["spec"]["network"] = {{"mode", "LoadBalancer"}};
    Submit(job);
    // A load balancer gives its address as soon as there is a Service.
    for (int i = 0; i < 3 && !looking_->Get(manifests::kServices, {"default", "train-broker"}).ok(); ++i) (void)Reconcile();
    SimulateCluster();
  }

  bool tokyo_balances_ = true;
  FakeApiServer tokyo_server_{clock_};
  CrashingTransport* tokyo_transport_ = nullptr;
  std::unique_ptr<kube::ApiClient> tokyo_client_, tokyo_writes_;  // of the test; of the operator
  std::shared_ptr<DirectMember> tokyo_;
};

}  // namespace fusionllm::op::controller::testing
