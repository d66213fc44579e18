// A client that hands every call on to another: what a client that changes some of the verbs derives from. Thread-safe.
#pragma once

#include <stop_token>
#include <string>
#include <utility>

#include "lib/kube/client/api_client.h"

namespace fusionllm::kube {

class ForwardingClient : public ApiClient {
 public:
  // `client` must outlive it.
  explicit ForwardingClient(ApiClient& client) : client_(client) {}

  absl::StatusOr<std::string> Get(const Resource& resource, const ObjectKey& key, const CallOptions& call) override {
    return client_.Get(resource, key, call);
  }
  absl::StatusOr<std::string> GetMetadata(const Resource& resource, const ObjectKey& key, const CallOptions& call) override {
    return client_.GetMetadata(resource, key, call);
  }
  absl::StatusOr<std::string> List(const Resource& resource, absl::string_view ns, const ListOptions& options,
                                   const CallOptions& call) override {
    return client_.List(resource, ns, options, call);
  }
  absl::Status StreamList(const Resource& resource, absl::string_view ns, const ListOptions& options, WatchSink& sink,
                          const CallOptions& call) override {
    return client_.StreamList(resource, ns, options, sink, call);
  }
  absl::StatusOr<std::string> Create(const Resource& resource, absl::string_view ns, absl::string_view body, const WriteOptions& options,
                                     const CallOptions& call) override {
    return client_.Create(resource, ns, body, options, call);
  }
  absl::StatusOr<std::string> Update(const Resource& resource, const ObjectKey& key, absl::string_view body, const WriteOptions& options,
                                     const CallOptions& call) override {
    return client_.Update(resource, key, body, options, call);
  }
  absl::StatusOr<std::string> Apply(const Resource& resource, const ObjectKey& key, absl::string_view body, const ApplyOptions& options,
                                    const CallOptions& call) override {
    return client_.Apply(resource, key, body, options, call);
  }
  absl::StatusOr<std::string> Patch(const Resource& resource, const ObjectKey& key, PatchType type, absl::string_view body,
                                    const WriteOptions& options, const CallOptions& call) override {
    return client_.Patch(resource, key, type, body, options, call);
  }
  absl::StatusOr<std::string> Delete(const Resource& resource, const ObjectKey& key, const DeleteOptions& options,
                                     const CallOptions& call) override {
    return client_.Delete(resource, key, options, call);
  }
  absl::Status Watch(const Resource& resource, absl::string_view ns, const WatchOptions& options, WatchSink& sink,
                     std::stop_token stop) override {
    return client_.Watch(resource, ns, options, sink, std::move(stop));
  }
  absl::StatusOr<std::string> GetPath(absl::string_view path, const CallOptions& call) override { return client_.GetPath(path, call); }
  std::optional<absl::Duration> ServerClockSkew() const override { return client_.ServerClockSkew(); }

 protected:
  ApiClient& inner() const { return client_; }

 private:
  ApiClient& client_;
};

}  // namespace fusionllm::kube
