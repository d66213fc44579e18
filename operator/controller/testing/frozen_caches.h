// Caches that show what was there when somebody made them, whatever has happened since. Header-only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/controller/testing/reconcile_fixture.h"

namespace fusionllm::op::controller::testing {

// Of a cluster.
class FrozenMember : public cache::Member {
 public:
  FrozenMember(const DirectMember& seen, kube::ApiClient& client, const std::string& job_uid)
      : name_(seen.name()),
        client_(client),
        pods_(seen.PodsOf({.name = "train", .ns = "default", .uid = job_uid, .origin = kOrigin})),
        owner_config_maps_(seen.OwnerConfigMaps()) {}
  const std::string& name() const override { return name_; }
  bool reachable() const override { return true; }
  bool lost() const override { return false; }
  kube::ApiClient& client() const override { return client_; }
  std::vector<lifecycle::PodView> PodsOf(const manifests::JobIdentity&) const override { return pods_; }
  std::optional<cache::OwnerConfigMapView> OwnerConfigMapOf(const manifests::JobIdentity&) const override {
    return owner_config_maps_.empty() ? std::nullopt : std::optional(owner_config_maps_.front());
  }
  std::vector<cache::OwnerConfigMapView> OwnerConfigMaps() const override { return owner_config_maps_; }
  void Wrote(const std::string&, const kube::Resource&, const std::string&) override {}
  bool SeenWrites(const std::string&) override { return true; }
  std::shared_ptr<const cache::ClusterCapacity> Capacity() const override { return nullptr; }

  const std::string name_;
  kube::ApiClient& client_;
  std::vector<lifecycle::PodView> pods_;
  std::vector<cache::OwnerConfigMapView> owner_config_maps_;
};

class FrozenJobs : public cache::JobSource {
 public:
  explicit FrozenJobs(cache::JobView view) : view_(std::move(view)) {}
  std::shared_ptr<const cache::JobView> Find(const kube::ObjectKey&) const override {
    return std::make_shared<const cache::JobView>(view_);
  }
  void Wrote(const kube::ObjectKey&, const std::string&) override {}
  bool SeenWrites(const kube::ObjectKey&) override { return true; }
  cache::JobView view_;
};

}  // namespace fusionllm::op::controller::testing
