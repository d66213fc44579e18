// A client that notices a server gone silent long before its watches would: a stopped process, or a cut behind a load balancer, still
// acknowledges packets, and a dead watch looks like a quiet one.
//
// While watches are open it asks the server for its version, every `period` and with a short timeout. When that fails `misses` times in a
// row the open watches end with Unavailable, so that whoever follows them tries again and says so. All other verbs are those of the client
// it is made of. Thread-safe.
#pragma once

#include <condition_variable>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <thread>

#include "lib/kube/client/api_client.h"
#include "lib/kube/clock.h"

namespace fusionllm::kube {

struct PulseTimes {
  absl::Duration period = absl::Seconds(12);
  absl::Duration timeout = absl::Seconds(10);
  int misses = 2;  // with the above a silence is noticed within 44 s
};

class PulsedClient : public ApiClient {
 public:
  // Both must outlive it, and so must no call of it.
  PulsedClient(ApiClient& client, Clock& clock, PulseTimes times = {});
  ~PulsedClient() override;

  // Whether the last questions were answered; true before the first.
  bool Alive() const;

  absl::Status Watch(const Resource& resource, absl::string_view ns, const WatchOptions& options, WatchSink& sink,
                     std::stop_token stop) override;

  absl::StatusOr<std::string> Get(const Resource& resource, const ObjectKey& key, const CallOptions& call) override {
    return client_.Get(resource, key, call);
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
  absl::StatusOr<std::string> GetPath(absl::string_view path, const CallOptions& call) override { return client_.GetPath(path, call); }

 private:
  void Ask(const std::stop_token& stop);

  ApiClient& client_;
  Clock& clock_;
  const PulseTimes times_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::stop_source*> open_;  // a watch each; requested: the server was silent
  int missed_ = 0;
  std::jthread thread_;
};

}  // namespace fusionllm::kube
