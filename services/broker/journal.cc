#include "services/broker/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/file_error.h"
#include "lib/base/json_text.h"
#include "services/broker/plan_result.h"

namespace fusionllm::services {
namespace {

using nlohmann::json;

// Of its step nothing is to be saved any more: a newer checkpoint of the run is whole, or the one that was made of it.
bool IsBehindTheCheckpoint(const broker::ShardWritten& shard, const JournalState& state) {
  return !state.checkpoint_path.empty() && shard.step <= state.checkpoint_step;
}

// Of a plan of another build the entry has what a broker needs to lead its ranks on.
broker::RunPlan UnreadPlan(const std::string& document, const json& entry) {
  broker::RunPlan run{.document = document, .devices = entry.at("devices")};
  const int replicas = entry.value("replicas", 1);
  const bool fits = replicas >= 1 && !run.devices.empty() && run.devices.size() % static_cast<size_t>(replicas) == 0;
  run.plan.replicas = fits ? replicas : 1;
  run.plan.stages.resize(static_cast<size_t>(run.stages()));
  const auto memory_bytes = entry.at("memory_bytes").get<std::vector<int64_t>>();
  for (size_t rank = 0; rank < run.devices.size() && rank < memory_bytes.size(); ++rank) {
    plan::Stage& stage = run.plan.stages[static_cast<size_t>(run.StageOf(static_cast<int>(rank)))];
    stage.index = run.StageOf(static_cast<int>(rank));
    stage.devices.push_back(run.devices[rank]);
    stage.by_replica.push_back({.memory_bytes = memory_bytes[rank]});
  }
  return run;
}

broker::RunPlan JournalledPlan(const std::string& document, const json& entry) {
  absl::StatusOr<broker::RunPlan> plan = ReadRunPlan(document);
  if (!plan.ok()) return UnreadPlan(document, entry);
  plan->devices = entry.at("devices");
  if (plan->devices.empty() || plan->devices.size() % static_cast<size_t>(plan->plan.replicas) != 0)
    plan->plan.replicas = 1;  // no entry of ours
  return *std::move(plan);
}

void Replay(const json& entry, JournalState& state) {
  const std::string kind = entry.at("entry");
  if (kind == "epoch") {
    state.epoch = entry.at("epoch");
    const std::string document = entry.at("plan");
    state.plan = JournalledPlan(document, entry);
    state.plan.executors = entry.value("executors", 0);
    state.plan.desired_executors = entry.value("wanted", 0);
    state.codec_limit = entry.value("codec_limit", "");
    state.earlier_bytes = entry.value("earlier_bytes", Traffic());
    state.epoch_bytes.clear();
    state.profiles = entry.at("profiles").get<std::map<std::string, std::string>>();
    state.links.clear();
    for (const json& link : entry.at("links")) {
      state.links.push_back(
          {.src = link.at("src"), .dst = link.at("dst"), .rtt_s = link.at("rtt_s"), .bytes_per_s = link.at("bytes_per_s")});
    }
    state.last_step = state.checkpoint_step;
    state.shards.clear();
    state.ended_at.clear();
  } else if (kind == "step") {
    const broker::StepRecord record = {.step = entry.at("step"),
                                       .loss = std::bit_cast<float>(entry.at("loss_bits").get<uint32_t>()),
                                       .counted = entry.value("counted", 1.0),
                                       .step_seconds = entry.at("step_seconds")};
    state.last_step = record.step;
    state.steps.emplace_back(entry.at("epoch"), record);
  } else if (kind == "codec limits") {
    state.codec_limit = entry.at("codec_limit");
    state.codec_limits.clear();
    for (const json& limit : entry.at("limits")) {
      const std::pair value(limit.at("value").get<std::string>(), limit.at("gradient").get<bool>());
      state.codec_limits[value] = limit.at("codec").get<std::string>();
    }
    ++state.backoffs;
  } else if (kind == "traffic") {
    if (entry.at("epoch") == state.epoch) state.epoch_bytes[entry.at("device")] = entry.at("bytes").get<std::map<std::string, int64_t>>();
  } else if (kind == "stage end") {
    if (entry.at("epoch") == state.epoch) state.ended_at[entry.at("device")] = entry.at("step");
  } else if (kind == "shard") {
    broker::ShardWritten shard = {
        .epoch = entry.at("epoch"), .step = entry.at("step"), .stage = entry.at("stage"), .samples_consumed = entry.at("samples_consumed")};
    for (const json& file : entry.at("files")) {
      shard.files.push_back({.name = file.at("name"),
                             .bytes = file.at("bytes"),
                             .sha256 = file.at("sha256"),
                             .tensors = file.at("tensors"),
                             .tensor_bytes = file.value("tensor_bytes", int64_t{0}),
                             .site = file.value("site", ""),
                             .site_folder = file.value("site_folder", "")});
    }
    if (shard.epoch == state.epoch && !IsBehindTheCheckpoint(shard, state)) state.shards.push_back(std::move(shard));
  } else if (kind == "checkpoint") {
    state.checkpoint_step = entry.at("step");
    state.checkpoint_path = entry.at("path");
    std::erase_if(state.shards, [&](const broker::ShardWritten& shard) { return IsBehindTheCheckpoint(shard, state); });
  } else if (kind == "end") {
    state.ended = true;
  }
}

absl::Status Unreadable(const std::string& path) { return base::FileError(errno, "read journal", path); }

}  // namespace

absl::Status Journal::Discard(const std::string& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  if (!error) return absl::OkStatus();
  return base::FileError(error.value(), "remove the journal of an earlier run,", path);
}

absl::StatusOr<Journal> Journal::Open(const std::string& path, JournalState* state) {
  std::ifstream in(path);
  // What cannot be read must not be taken for an empty journal: it would be cut off below.
  if (!in && errno != ENOENT) return Unreadable(path);
  std::string line;
  size_t valid_bytes = 0;
  for (int number = 1; std::getline(in, line); ++number) {
    const json entry = base::ParseJson(line);
    if (in.bad()) return Unreadable(path);
    if (in.eof() || entry.is_discarded()) {
      if (in.peek() != std::ifstream::traits_type::eof()) {
        return absl::DataLossError(absl::StrFormat("%s:%d: not a journal entry", path, number));
      }
      break;  // torn by the death of its writer; what it said had not reached anyone
    }
    try {
      Replay(entry, *state);
    } catch (const json::exception& error) {
      return absl::DataLossError(absl::StrFormat("%s:%d: %s", path, number, error.what()));
    }
    valid_bytes += line.size() + 1;
  }
  if (in.bad()) return Unreadable(path);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(valid_bytes)) != 0 || lseek(fd, 0, SEEK_END) < 0) {
    return base::FileError(errno, "open journal", path);
  }
  return Journal(fd, path);
}

Journal::~Journal() {
  if (fd_ >= 0) close(fd_);
}

absl::Status Journal::Append(const std::string& line, bool sync) {
  const std::string text = line + "\n";
  const off_t before = lseek(fd_, 0, SEEK_END);
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = write(fd_, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    written += static_cast<size_t>(n);
  }
  if (written == text.size() && (!sync || fdatasync(fd_) == 0)) return absl::OkStatus();
  const absl::Status status = base::FileError(errno, "write journal", path_);
  // Half a line in the middle would make all that follows it unreadable.
  if (before >= 0 && ftruncate(fd_, before) == 0) (void)lseek(fd_, before, SEEK_SET);
  return status;
}

absl::Status Journal::RecordEpoch(uint32_t epoch, const broker::RunPlan& plan, const std::map<std::string, std::string>& profiles,
                                  const std::vector<broker::Link>& links, const std::string& codec_limit, const Traffic& earlier_bytes) {
  json entry = {{"entry", "epoch"},
                {"epoch", epoch},
                {"plan", plan.document},
                {"devices", plan.devices},
                {"replicas", plan.plan.replicas},
                {"memory_bytes", plan.MemoryBytes()},
                {"executors", plan.executors},
                {"wanted", plan.desired_executors},
                {"profiles", profiles},
                {"codec_limit", codec_limit},
                {"earlier_bytes", earlier_bytes},
                {"links", json::array()}};
  for (const broker::Link& link : links) {
    entry["links"].push_back({{"src", link.src}, {"dst", link.dst}, {"rtt_s", link.rtt_s}, {"bytes_per_s", link.bytes_per_s}});
  }
  return Append(entry.dump(), /*sync=*/true);
}

absl::Status Journal::RecordStep(uint32_t epoch, const broker::StepRecord& record) {
  // Not synced: after a power cut the checkpoint decides anyway, after a crash of the process the page cache has it.
  return Append(json{{"entry", "step"},
                     {"epoch", epoch},
                     {"step", record.step},
                     {"loss_bits", std::bit_cast<uint32_t>(record.loss)},
                     {"counted", record.counted},
                     {"step_seconds", record.step_seconds}}
                    .dump(),
                /*sync=*/false);
}

absl::Status Journal::RecordTraffic(uint32_t epoch, const std::string& device, const std::map<std::string, int64_t>& bytes) {
  return Append(json{{"entry", "traffic"}, {"epoch", epoch}, {"device", device}, {"bytes", bytes}}.dump(), /*sync=*/false);
}

absl::Status Journal::RecordCodecLimits(const std::string& codec_limit, const broker::CodecLimits& limits) {
  json entry = {{"entry", "codec limits"}, {"codec_limit", codec_limit}, {"limits", json::array()}};
  for (const auto& [value, codec] : limits) {
    entry["limits"].push_back({{"value", value.first}, {"gradient", value.second}, {"codec", codec}});
  }
  return Append(entry.dump(), /*sync=*/false);
}

absl::Status Journal::RecordStageEnd(const broker::StageEnded& ended) {
  return Append(json{{"entry", "stage end"}, {"epoch", ended.epoch}, {"device", ended.name}, {"step", ended.last_step}}.dump(),
                /*sync=*/false);
}

absl::Status Journal::RecordShard(const broker::ShardWritten& shard) {
  json entry = {{"entry", "shard"},     {"epoch", shard.epoch},   {"step", shard.step},
                {"stage", shard.stage}, {"files", json::array()}, {"samples_consumed", shard.samples_consumed}};
  for (const checkpoint::FileEntry& file : shard.files) {
    entry["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}, {"tensors", file.tensors}});
    if (file.site.empty()) continue;
    entry["files"].back().update({{"site", file.site}, {"site_folder", file.site_folder}, {"tensor_bytes", file.tensor_bytes}});
  }
  return Append(entry.dump(), /*sync=*/false);
}

absl::Status Journal::RecordCheckpoint(int64_t step, const std::string& path) {
  return Append(json{{"entry", "checkpoint"}, {"step", step}, {"path", path}}.dump(), /*sync=*/true);
}

absl::Status Journal::RecordEnd() { return Append(json{{"entry", "end"}}.dump(), /*sync=*/true); }

}  // namespace fusionllm::services
