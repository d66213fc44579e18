#include "services/executor/site_keeper.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"

namespace fusionllm::services {

SiteKeeper::SiteKeeper(checkpoint::SiteStore& store, CheckpointClient& client)
    : store_(store), client_(client), worker_([this] { Work(); }) {}

SiteKeeper::~SiteKeeper() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    news_.notify_all();
  }
  worker_.join();
}

void SiteKeeper::Post(std::function<void(bool)> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  news_.notify_all();
}

void SiteKeeper::Work() {
  while (true) {
    std::function<void(bool)> task;
    bool ending = false;
    {
      std::unique_lock lock(mutex_);
      news_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      ending = ending_;
    }
    task(ending);
  }
}

void SiteKeeper::OnSend(const v1::SendShard& order) {
  Post([this, order](bool ending) {
    if (ending) return;
    const v1::SiteFile& file = order.file();
    const absl::StatusOr<std::string> path = store_.PathOf(file.site_folder(), file.name());
    const absl::Status sent = path.ok() ? client_.SendFile(order.recall(), file.name(), *path) : path.status();
    if (!sent.ok()) base::Log(base::LogLevel::kWarning, absl::StrCat(file.name(), " was not sent: ", std::string(sent.message())));
  });
}

void SiteKeeper::OnKeep(const v1::KeepShards& order) {
  Post([this, order](bool) {
    const std::set<std::string> present(order.present().begin(), order.present().end());
    const checkpoint::Decided decided{.epoch = order.epoch(),
                                      .step = order.step(),
                                      .kept = {order.site_folders().begin(), order.site_folders().end()},
                                      .present = order.of_others() ? &present : nullptr};
    const absl::Status tidied = store_.Tidy(decided);
    if (!tidied.ok()) base::Log(base::LogLevel::kWarning, absl::StrCat("shards that no checkpoint has: ", std::string(tidied.message())));
  });
}

}  // namespace fusionllm::services
