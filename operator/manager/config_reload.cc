#include "operator/manager/config_reload.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/log.h"
#include "lib/job/printer.h"
#include "operator/manager/config_fields.h"

namespace fusionllm::op::manager {
namespace {

using Setting = std::pair<std::string, std::string>;

// Visitor that writes each setting under its path.
class SettingTexts {
 public:
  static constexpr bool kFillsIn = false;

  static std::vector<Setting> Of(Flags flags) {
    SettingTexts texts;
    Visit(texts, flags);
    return std::move(texts.settings_);
  }

  void Constant(absl::string_view, absl::string_view) {}

  template <class T>
  void Field(absl::string_view name, T& value, const job::Rule& rule, absl::string_view) {
    if constexpr (job::IsVector<T>::value) {
      settings_.emplace_back(name, absl::StrCat("[", absl::StrJoin(value, ", "), "]"));
    } else {
      settings_.emplace_back(name, job::ScalarText(value, rule));
    }
  }

 private:
  std::vector<Setting> settings_;
};

bool IsReloadable(absl::string_view name) {
  return std::find(std::begin(kReloadable), std::end(kReloadable), name) != std::end(kReloadable);
}

// What IsReloadable() says of, and nothing else.
void CopyReloadable(const Flags& from, Flags& to) {
  to.common.log_level = from.common.log_level;
  to.hub_qps = from.hub_qps;
  to.hub_burst = from.hub_burst;
}

}  // namespace

ConfigMetrics::ConfigMetrics(metrics::Registry& registry)
    : successful_(registry.AddGauge(
          {"config_last_reload_successful",
           "1: the file of --config was in order when it was last read; 0: it was not, and what it said before is in force."})),
      success_time_(registry.AddGauge(
          {"config_last_reload_success_timestamp_seconds", "When the file of --config was last read, new or changed, and in order."})) {}

void ConfigMetrics::Read(bool well, absl::Time now) const {
  successful_.Set(well ? 1 : 0);
  if (well) success_time_.Set(absl::ToDoubleSeconds(now - absl::UnixEpoch()));
}

std::vector<std::string> Differences(const Flags& one, const Flags& other) {
  const std::vector<Setting> of_one = SettingTexts::Of(one), of_other = SettingTexts::Of(other);
  std::vector<std::string> names;
  for (size_t i = 0; i < of_one.size(); ++i) {
    if (of_one[i] != of_other[i]) names.push_back(of_one[i].first);
  }
  return names;
}

ConfigReload::ConfigReload(Flags flags, const CommandLine& line, Apply apply, kube::Clock& clock, const ConfigMetrics& metrics)
    : in_force_(std::move(flags)), line_(line), apply_(std::move(apply)), clock_(clock), metrics_(metrics) {
  metrics_.Read(/*well=*/true, clock_.Now());
}

void ConfigReload::Look(bool force) {
  const absl::StatusOr<std::string> yaml = ReadConfigFile(in_force_.config);
  std::string seen = yaml.ok() ? *yaml : std::string(yaml.status().message());
  if (seen == seen_ && !force) return;
  seen_ = std::move(seen);
  const absl::StatusOr<Flags> now = yaml.ok() ? MergeFlags(*yaml, in_force_.config, line_) : yaml.status();
  metrics_.Read(now.ok(), clock_.Now());
  const bool was_wrong = std::exchange(wrong_, !now.ok());
  if (!now.ok()) {
    base::Log(base::LogLevel::kError,
              absl::StrCat("config ", in_force_.config, ": what it said before stays in force: ", std::string(now.status().message())));
    return;
  }
  if (was_wrong) base::Log(base::LogLevel::kInfo, absl::StrCat("config ", in_force_.config, ": in order again"));
  Take(*now);
}

void ConfigReload::Take(const Flags& now) {
  std::vector<std::string> changed, waiting;
  for (std::string& name : Differences(in_force_, now)) (IsReloadable(name) ? changed : waiting).push_back(std::move(name));
  if (!changed.empty()) {
    // Before and, should only the new level let it pass, after.
    const std::string line = absl::StrCat("config ", in_force_.config, ": changed, and in force: ", absl::StrJoin(changed, ", "));
    const bool said = base::IsLogged(base::LogLevel::kInfo);
    if (said) base::Log(base::LogLevel::kInfo, line);
    CopyReloadable(now, in_force_);
    apply_(in_force_);
    if (!said) base::Log(base::LogLevel::kInfo, line);
  }
  if (waiting.empty()) return;
  base::Log(base::LogLevel::kWarning,
            absl::StrCat("config ", in_force_.config, ": changed, and needs a restart: ", absl::StrJoin(waiting, ", ")));
}

void ConfigReload::Start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { Follow(stop); });
}

void ConfigReload::LookSoon() {
  const base::MutexLock lock(mutex_);
  asked_ = true;
  changed_.notify_all();
}

void ConfigReload::Follow(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    const base::MutexLock lock(mutex_);
    changed_.notify_all();
  });
  base::UniqueLock lock(mutex_);
  while (true) {
    const absl::Duration next = clock_.Monotonic() + kEvery;
    while (!stop.stop_requested() && !asked_ && clock_.Monotonic() < next) clock_.WaitUntil(lock, changed_, next);
    if (stop.stop_requested()) return;
    const bool force = std::exchange(asked_, false);
    lock.unlock();
    Look(force);
    lock.lock();
  }
}

}  // namespace fusionllm::op::manager
