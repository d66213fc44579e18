#include "services/executor/site_shard_server.h"

#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {

SiteShardServer::SiteShardServer(checkpoint::SiteStore& store, CheckpointClient& client)
    : store_(store), client_(client), sender_([this] { Send(); }), remover_([this] { Remove(); }) {}

SiteShardServer::~SiteShardServer() {
  {
    const base::MutexLock lock(mutex_);
    ending_ = true;
    news_.notify_all();
  }
  sender_.join();
  remover_.join();
}

void SiteShardServer::OnSend(const v1::SendShard& order) {
  const base::MutexLock lock(mutex_);
  to_send_.push_back(order);
  news_.notify_all();
}

void SiteShardServer::OnKeep(const v1::KeepShards& order) {
  const base::MutexLock lock(mutex_);
  // One that comes behind a later one, of a checkpoint that came to nothing, has nothing to add.
  const auto age = [](const v1::KeepShards& one) { return std::pair(one.epoch(), one.step()); };
  if (to_keep_.has_value() && to_keep_->incarnation() == order.incarnation() && age(*to_keep_) > age(order)) return;
  to_keep_ = order;
  news_.notify_all();
}

void SiteShardServer::Send() {
  while (true) {
    v1::SendShard order;
    {
      base::UniqueLock lock(mutex_);
      news_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ending_ || !to_send_.empty(); });
      if (ending_) return;
      order = std::move(to_send_.front());
      to_send_.pop_front();
    }
    const v1::SiteFile& file = order.file();
    const absl::StatusOr<std::string> path = store_.PathOf(file.site_folder(), file.name());
    const absl::Status sent = path.ok() ? client_.SendFile(order.recall(), file.name(), *path) : path.status();
    if (!sent.ok()) base::Log(base::LogLevel::kWarning, absl::StrCat(file.name(), " was not sent: ", std::string(sent.message())));
  }
}

void SiteShardServer::Remove() {
  while (true) {
    v1::KeepShards order;
    {
      base::UniqueLock lock(mutex_);
      news_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ending_ || to_keep_.has_value(); });
      if (!to_keep_.has_value()) return;
      order = *std::exchange(to_keep_, std::nullopt);
    }
    const std::set<std::string> present(order.present().begin(), order.present().end());
    const checkpoint::CommitProgress decided{.epoch = order.epoch(),
                                             .step = order.step(),
                                             .kept = {order.site_folders().begin(), order.site_folders().end()},
                                             .present = order.of_others() ? &present : nullptr};
    const absl::Status tidied = store_.GarbageCollect(decided);
    if (!tidied.ok()) base::Log(base::LogLevel::kWarning, absl::StrCat("shards that no checkpoint has: ", std::string(tidied.message())));
  }
}

}  // namespace fusionllm::services
