// What an executor does for the broker with the shards that lie in its site: sends files that are asked for, removes what no checkpoint
// has.
//
// Orders are worked off one after the other on a thread of its own, so that a stage trains, or waits for what is sent, meanwhile.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "lib/checkpoint/site_store.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/executor/checkpoint_client.h"

namespace fusionllm::services {

class SiteKeeper {
 public:
  // Both outlive the keeper.
  SiteKeeper(checkpoint::SiteStore& store, CheckpointClient& client);
  // Carries out what it has been told to remove, and sends nothing any more.
  ~SiteKeeper();

  void OnSend(const v1::SendShard& order);
  void OnKeep(const v1::KeepShards& order);

 private:
  void Work();
  void Post(std::function<void(bool ending)> task);

  checkpoint::SiteStore& store_;
  CheckpointClient& client_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::function<void(bool ending)>> tasks_;
  bool ending_ = false;
  std::thread worker_;
};

}  // namespace fusionllm::services
