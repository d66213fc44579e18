// What an executor does for the broker with the shards that lie in its site: sends files that are asked for, removes what no checkpoint
// has.
//
// Files are sent one after the other on a thread of its own, so that a stage trains, or waits for what is sent, meanwhile. What is to be
// removed is removed at once, on another thread: an order that waited behind a file for a slow link would know nothing of the devices that
// came, and of the checkpoints that were made, in between.
#pragma once

#include <condition_variable>
#include <deque>
#include <optional>
#include <thread>

#include "lib/base/mutex.h"
#include "lib/checkpoint/site_store.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/executor/checkpoint_client.h"

namespace fusionllm::services {

class SiteShardServer {
 public:
  // Both outlive the keeper.
  SiteShardServer(checkpoint::SiteStore& store, CheckpointClient& client);
  // Carries out what it was asked to remove, and sends nothing any more.
  ~SiteShardServer();

  void OnSend(const v1::SendShard& order);
  void OnKeep(const v1::KeepShards& order);

 private:
  void Send();
  void Remove();

  checkpoint::SiteStore& store_;
  CheckpointClient& client_;
  base::Mutex mutex_;
  std::condition_variable news_;
  std::deque<v1::SendShard> to_send_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::KeepShards> to_keep_ ABSL_GUARDED_BY(mutex_);  // a newer order knows all that those before it knew
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread sender_, remover_;
};

}  // namespace fusionllm::services
