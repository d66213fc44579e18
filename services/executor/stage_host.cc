#include "services/executor/stage_host.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/content_digest.h"
#include "lib/base/cpu_usage.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/memory_limit.h"
#include "lib/base/pluralize.h"
#include "lib/base/status_macros.h"
#include "lib/base/truncate_utf8.h"
#include "lib/checkpoint/layout.h"
#include "lib/job/parse.h"
#include "lib/plan/plan.h"
#include "lib/planning/calibrate.h"
#include "lib/wire/plan_json.h"
#include "lib/wire/profile_json.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/checkpoint_directory.h"
#include "services/executor/machine_lock.h"
#include "services/executor/process_memory.h"
#include "services/version.h"

namespace fusionllm::services {
namespace {

// Also what a machine does that joins a run which goes on without it.
constexpr char kWaiting[] = "waiting for a plan with a stage for this machine";

constexpr int64_t kFetchNewsNs = 5'000'000'000;
constexpr size_t kMaxRetriedBytes = 2048;

// In words that change when the data do; empty where there are no files. Blocks: the files that are listed are read, in part.
std::string ContentsOf(const data::FilesRead& files, int64_t samples) {
  std::vector<std::string> paths;
  for (const data::FilesRead::File& file : files.first) paths.push_back(file.path);
  const absl::StatusOr<std::string> digest = base::ContentDigest(paths);
  if (paths.empty() || !digest.ok()) return "";
  return absl::StrFormat("%s in %d bytes, digest %s", base::Pluralize(samples, "sample"), files.bytes, *digest);
}

}  // namespace

StageHost::StageHost(HostOptions options, DataPlane& data_plane, CheckpointClient& checkpoints, ExecutorMetrics& executor_metrics,
                     ReportFunction report)
    : options_(std::move(options)),
      data_plane_(data_plane),
      checkpoints_(checkpoints),
      executor_metrics_(executor_metrics),
      report_(std::move(report)),
      site_(options_.site.empty() ? options_.name : options_.site),
      worker_([this] { Work(); }) {}

StageHost::~StageHost() { Shutdown(); }

void StageHost::Shutdown() {
  std::shared_ptr<runtime::Inbox> inbox;
  {
    const base::MutexLock lock(mutex_);
    if (shutting_down_ && !worker_.joinable()) return;
    shutting_down_ = true;
    inbox = inbox_;
    fetching_.request_stop();
    news_.notify_all();
  }
  if (inbox != nullptr) inbox->Cancel(absl::CancelledError("the executor is shutting down"));  // which may send: see Inbox
  checkpoints_.Cancel(std::numeric_limits<uint32_t>::max());
  if (worker_.joinable()) worker_.join();
  if (shards_ != nullptr) shards_->Wait();
  site_shard_server_.reset();
}

void StageHost::Work() {
  while (true) {
    std::function<void()> task;
    {
      base::UniqueLock lock(mutex_);
      news_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return shutting_down_ || !tasks_.empty(); });
      if (shutting_down_) break;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
  epoch_.reset();
}

// Once, also where the broker asks again.
void StageHost::Phase(std::string phase) {
  if (phase == phase_) return;
  phase_ = std::move(phase);
  if (options_.on_phase) options_.on_phase(phase_);
}

void StageHost::Post(std::function<void()> task) {
  const base::MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
  news_.notify_all();
}

v1::Hello StageHost::Hello() const {
  const base::MutexLock lock(mutex_);
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_name(options_.name);
  hello.set_incarnation(options_.incarnation);
  if (options_.attempt.has_value()) hello.set_attempt(*options_.attempt);
  hello.set_build_version(options_.build_version);
  hello.set_backend(backend_ == nullptr ? "" : std::string(backend_->name()));
  hello.set_memory_bytes(memory_bytes_ > 0 ? memory_bytes_ : MemoryOfDevice());
  hello.set_device_description(options_.device_description);
  hello.set_threads(threads_);
  hello.set_data_address(data_plane_.address());
  hello.set_site_address(data_plane_.site_address());
  hello.set_pid(getpid());
  hello.set_site(site_);
  hello.set_spare(options_.spare);
  hello.set_epoch(started_epoch_);
  hello.set_stage(running_stage_);
  hello.set_last_step(last_step_);
  hello.set_holds_shards(!options_.site_checkpoints.empty());
  return hello;
}

void StageHost::OnMessage(const v1::BrokerMessage& message) {
  switch (message.kind_case()) {
    case v1::BrokerMessage::kWelcome:
      Post([this, welcome = message.welcome()] {
        if (!welcomed_) welcome_status_ = Welcome(welcome);
        if (!welcomed_ && welcome_status_.ok())
          Phase(options_.spare ? "waiting as a spare until another machine is lost" : "waiting for the other machines");
        welcomed_ = true;
        if (welcome_status_.ok()) return;
        // Now, not when it is asked to do something; and again to a broker that has come back, which does not know.
        v1::ExecutorMessage message;
        message.mutable_calibration()->set_error(std::string(welcome_status_.message()));
        message.mutable_calibration()->set_code(static_cast<int>(welcome_status_.code()));
        report_(std::move(message));
      });
      break;
    case v1::BrokerMessage::kCalibrate:
      Post([this] { Calibrate(); });
      break;
    case v1::BrokerMessage::kProbe:
      Post([this, probe = message.probe()] { Probe(probe); });
      break;
    case v1::BrokerMessage::kAssign:
      Post([this, assign = message.assign()] { Assign(assign); });
      break;
    case v1::BrokerMessage::kStart:
      Post([this, epoch = message.start().epoch()] { Start(epoch); });
      break;
    case v1::BrokerMessage::kAbort:
      Abort(message.abort().epoch(), message.abort().reason());
      break;
    case v1::BrokerMessage::kStop:
      stop_requested_ = message.stop().epoch();
      break;
    case v1::BrokerMessage::kLimitCodecs: {
      const auto limit = compression::ParseCodecSpec(message.limit_codecs().codec());
      const base::MutexLock lock(mutex_);
      if (limit.ok() && codec_limit_ != nullptr && inbox_epoch_ == message.limit_codecs().epoch()) codec_limit_->Set(*limit);
      break;
    }
    case v1::BrokerMessage::kSendShard:
    case v1::BrokerMessage::kKeepShards: {
      // The worker may be busy with a stage for long; but not before it has been welcomed.
      const auto pass_on = [this, message] {
        if (site_shard_server_ != nullptr && message.has_send_shard()) site_shard_server_->OnSend(message.send_shard());
        // What was meant for the process before this one knows nothing of what that has reported since.
        if (message.has_keep_shards() && message.keep_shards().incarnation() != options_.incarnation) return;
        if (site_shard_server_ != nullptr && message.has_keep_shards()) site_shard_server_->OnKeep(message.keep_shards());
      };
      base::UniqueLock lock(mutex_);
      const bool welcomed = site_shard_server_ != nullptr;
      lock.unlock();
      if (welcomed) {
        pass_on();
      } else {
        Post(pass_on);
      }
      break;
    }
    case v1::BrokerMessage::kShutdown:
    case v1::BrokerMessage::kRefusal:
    case v1::BrokerMessage::kAck:
    case v1::BrokerMessage::KIND_NOT_SET:
      break;
  }
}

// ---- Before a plan ----------------------------------------------------------------------------------------------------------------------

absl::Status StageHost::Welcome(const v1::Welcome& welcome) {
  const SharedFiles shared =
      MayUseSharedFolder(options_.access, welcome.shared_token_file()) ? SharedFiles(welcome, !options_.access.closed) : SharedFiles();
  if (!options_.site_checkpoints.empty() && !welcome.shards_id().empty()) {
    if (!checkpoint::IsShardsId(welcome.shards_id())) {  // it is part of paths
      return absl::InvalidArgumentError("the broker names no folder for shards in this site, but something else");
    }
    site_store_ = std::make_unique<checkpoint::SiteStore>(options_.site_checkpoints, welcome.shards_id(), options_.name);
    const base::MutexLock lock(mutex_);
    site_shard_server_ = std::make_unique<SiteShardServer>(*site_store_, checkpoints_);
  }
  restorer_.emplace(shared, checkpoints_, site_store_.get());
  if (shared.Has(welcome.output_directory())) {
    measure_lock_ = absl::StrCat(welcome.output_directory(), "/measure.lock");
    run_objects_ = absl::StrCat(welcome.output_directory(), "/", kFetchedObjects);
    shared_calibration_ = SharedCalibration(welcome.output_directory(), welcome.shared_token());
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const job::FusionJob job, job::ParseFusionJob(welcome.job_document(), "job.yaml"));
  FUSIONLLM_RETURN_IF_ERROR(CheckGraphAccess(options_.access, job, welcome.base_directory()));
  FUSIONLLM_ASSIGN_OR_RETURN(workload_, workload::Resolve(job, welcome.base_directory()));
  planner_chooses_size_ = job.spec.training.micro_batch_size == 0;
  const int64_t wanted_threads = job.spec.executors.threads;
  {
    const base::MutexLock lock(mutex_);
    threads_ = static_cast<int>(wanted_threads > 0 ? wanted_threads : std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
    memory_bytes_ = MemoryOfDevice();
  }
  if (!welcome.topology_document().empty() && options_.access.closed) {
    return absl::PermissionDeniedError("this machine joined the run by itself and emulates no device of a topology");
  }
  if (!welcome.topology_document().empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(const job::Topology topology, job::ParseTopology(welcome.topology_document(), "topology.yaml"));
    FUSIONLLM_ASSIGN_OR_RETURN(const job::LinkTable links, job::LinkTable::Create(topology));
    for (const job::LinkTable::Place& place : links.devices()) {
      if (place.device.name != options_.name) continue;
      const base::MutexLock lock(mutex_);
      compute_scale_ = place.device.compute_scale;
      emulate_ = true;
      site_ = topology.spec.sites[place.site].name;
      threads_ = static_cast<int>(place.device.threads);
      if (place.device.memory.has_value()) memory_bytes_ = place.device.memory->bytes;
    }
    FUSIONLLM_RETURN_IF_ERROR(data_plane_.Emulate(links, absl::StrCat(welcome.output_directory(), "/links.state")));
  }
  executor_metrics_.MemoryLimit(memory_bytes_);
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string backend_name, BackendFor(job));
  FUSIONLLM_ASSIGN_OR_RETURN(auto backend,
                             kernels::CreateBackend(backend_name, {.threads = threads_, .deterministic = !options_.allow_nondeterminism}));
  base::Log(base::LogLevel::kInfo, backend->Describe());
  {
    const base::MutexLock lock(mutex_);
    backend_ = std::move(backend);
  }
  if (job.spec.checkpoint.has_value()) {
    const std::string directory = CheckpointDirectory(job.spec.checkpoint->path, welcome.output_directory());
    // What was left in the site when the job said otherwise is read and sent from there all the same.
    checkpoint::SiteStore* const keeps = job.spec.checkpoint->shards == job::Shards::kSite ? site_store_.get() : nullptr;
    const bool in_site = keeps != nullptr && !shared.HasCheckpoints(directory);
    const auto done = [this](v1::ShardReport report) {
      v1::ExecutorMessage message;
      *message.mutable_shard() = std::move(report);
      report_(std::move(message));
    };
    shards_ = std::make_unique<ShardWriter>(StoreFor(shared, directory, keeps, checkpoints_), done, in_site ? site_ : "");
  }
  memory_at_join_ = ResidentBytes();
  return absl::OkStatus();
}

int64_t StageHost::MemoryOfDevice() const {
  if (options_.memory_bytes > 0) return options_.memory_bytes;
  return options_.device_memory_bytes > 0 ? options_.device_memory_bytes : base::AllowedMemoryBytes();
}

absl::StatusOr<std::string> StageHost::BackendFor(const job::FusionJob& job) const {
  if (job.spec.strategy.backend == job::Backend::kRef) return "ref";
  if (!emulate_ || options_.device == "cpu") return options_.device;
  if (options_.device_by_default) return "cpu";
  return absl::InvalidArgumentError(absl::StrCat("device '", options_.name,
                                                 "' is emulated (the topology gives it a speed), which only a CPU can be: not ",
                                                 options_.device, "; leave out --device, or the topology"));
}

absl::StatusOr<wire::DeviceProfile> StageHost::MeasureMachine() {
  // An executor of another machine may have no data; what is wrong with it is said by the stage that needs it, which also fetches what
  // lies in an object store: the others have no use for it.
  absl::StatusOr<std::unique_ptr<workload::DatasetSource>> data = absl::NotFoundError("not fetched");
  const bool here = !IsInObjectStore(workload_->data) && CheckDataAccess(options_.access, *workload_).ok();
  if (here) data = workload::DatasetSource::Open(*workload_);
  planning::CalibrationOptions options{.threads = threads_, .data = data.ok() ? data->get() : nullptr, .cancelled = [this] {
                                         const base::MutexLock lock(mutex_);
                                         return shutting_down_;
                                       }};
  if (emulate_) options = planning::ForEmulatedDevices(std::move(options));
  return planning::Calibrate(*workload_, *backend_, options);
}

void StageHost::Calibrate() {
  v1::ExecutorMessage message;
  absl::Status status = welcome_status_;
  if (status.ok()) {
    Phase("measuring this machine");
    const MachineLock alone(measure_lock_);
    std::optional<wire::DeviceProfile> shared;
    if (emulate_) shared = shared_calibration_.Find(std::string(backend_->name()), threads_);
    const bool measured = !shared.has_value();
    const base::CpuUsageMeter others;
    absl::StatusOr<wire::DeviceProfile> profile = measured ? MeasureMachine() : *std::move(shared);
    if (const auto use = others.Read(); measured && use && base::IsBusy(*use, compute_scale_ * threads_))
      base::Log(base::LogLevel::kWarning, base::BusySentence(*use));
    status = profile.status();
    // All kernels and libraries that stages use are loaded now, and no tensor is there.
    absl::StatusOr<std::optional<int64_t>> free = backend_->FreeMemoryBytes();
    if (status.ok()) status = free.status();
    if (status.ok()) {
      const base::MutexLock lock(mutex_);
      if (free->has_value()) memory_bytes_ = std::min(memory_bytes_, **free);
      profile->name = options_.name;
      profile->site = site_;
      profile->memory_bytes = memory_bytes_;
      profile->compute_scale = compute_scale_;
      profile->spare = options_.spare;
      message.mutable_calibration()->set_profile_document(wire::PrintProfile(*profile));
      // If it cannot be left there, the others measure for themselves.
      if (emulate_ && measured) {
        const absl::Status kept = shared_calibration_.Keep(*profile);
        if (!kept.ok()) base::Log(base::LogLevel::kWarning, absl::StrCat("the calibration is not shared: ", std::string(kept.message())));
      }
    }
  }
  if (!status.ok()) {
    message.mutable_calibration()->set_error(std::string(status.message()));
    // ResourceExhausted is memory that the model does not have here, and no plan can change that; of anything else there may be more later.
    const bool lacks_another = absl::IsResourceExhausted(status) && !tensor::IsOutOfMemory(status);
    message.mutable_calibration()->set_code(static_cast<int>(lacks_another ? absl::StatusCode::kUnavailable : status.code()));
  }
  if (status.ok()) Phase(kWaiting);
  report_(std::move(message));
}

void StageHost::Probe(const v1::Probe& probe) {
  if (epoch_ == nullptr) Phase("measuring links to the other machines");
  for (const v1::PeerAddress& peer : probe.peers()) {
    v1::ExecutorMessage message;
    v1::LinkReport& report = *message.mutable_link();
    report.set_peer(peer.name());
    data_plane_.SetPeer(peer.name(), peer.address(), peer.same_site(), peer.incarnation());
    const absl::StatusOr<LinkMeasurement> measured = data_plane_.Probe(peer.name());
    if (measured.ok()) {
      report.set_rtt_seconds(measured->rtt_s);
      report.set_bandwidth_bytes_per_second(measured->bytes_per_s);
    } else {
      report.set_error(std::string(measured.status().message()));
    }
    report_(std::move(message));
  }
  if (epoch_ == nullptr) Phase(kWaiting);
}

// ---- A plan epoch -----------------------------------------------------------------------------------------------------------------------

void StageHost::Assign(const v1::Assign& assign) {
  const int64_t begin_ns = runtime::MonotonicNanoseconds();
  epoch_.reset();
  Phase(absl::StrCat("building stage ", assign.stage()));
  v1::ExecutorMessage message;
  v1::StageReady& ready = *message.mutable_ready();
  ready.set_epoch(assign.epoch());
  absl::Status status = welcome_status_;
  if (status.ok()) status = TakeMicroBatchSize(assign);
  absl::StatusOr<std::unique_ptr<StageEpoch>> epoch = status.ok() ? Build(assign) : status;
  if (epoch.ok()) {
    epoch_ = *std::move(epoch);
    const auto planned_bytes = static_cast<int64_t>(epoch_->executor->memory().total());
    for (const std::string& name : epoch_->residuals) ready.add_residuals(name);
    ready.set_predicted_memory_bytes(planned_bytes);
    executor_metrics_.NewStage(planned_bytes);
  } else {
    ready.set_code(static_cast<int>(epoch.status().code()));
    ready.set_error(std::string(epoch.status().message()));
  }
  ready.set_load_seconds(static_cast<double>(runtime::MonotonicNanoseconds() - begin_ns) * 1e-9);
  report_(std::move(message));
}

// In place: the data's source, which outlives epochs, reads the size from there. No epoch is there now.
absl::Status StageHost::TakeMicroBatchSize(const v1::Assign& assign) {
  if (!planner_chooses_size_) return absl::OkStatus();
  const absl::StatusOr<plan::PlanResult> answer = wire::ParsePlan(assign.plan_document());
  const auto* const plan = answer.ok() ? std::get_if<plan::Plan>(&*answer) : nullptr;
  if (plan == nullptr || plan->micro_batch_size == workload_->micro_batch_size) return absl::OkStatus();  // what is wrong, Build says
  if (workload_->job.spec.training.global_batch_size % plan->micro_batch_size != 0) return absl::OkStatus();
  job::FusionJob job = workload_->job;
  job.spec.training.micro_batch_size = plan->micro_batch_size;
  FUSIONLLM_ASSIGN_OR_RETURN(const auto sized, workload::Resolve(job, workload_->base_directory));
  sized->data = std::move(workload_->data);  // where it was fetched to
  *workload_ = std::move(*sized);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<workload::DatasetSource>> StageHost::OpenData(uint32_t epoch) {
  // Once: what is fetched from a store lies elsewhere then.
  if (!data_allowed_) FUSIONLLM_RETURN_IF_ERROR(CheckDataAccess(options_.access, *workload_));
  data_allowed_ = true;
  if (IsInObjectStore(workload_->data)) {
    FetchOptions options{.environment = objectstore::ProcessEnvironment};
    FUSIONLLM_ASSIGN_OR_RETURN(options.scratch, scratch_.Folder(run_objects_, options.environment));
    {
      const base::MutexLock lock(mutex_);
      options.stop = fetching_.get_token();
    }
    int64_t bytes = 0, last_report_ns = runtime::MonotonicNanoseconds();
    options.progress = [&](int64_t more) {
      bytes += more;
      const int64_t now_ns = runtime::MonotonicNanoseconds();
      if (now_ns - last_report_ns < kFetchNewsNs) return;
      last_report_ns = now_ns;
      v1::ExecutorMessage message;
      message.mutable_fetching()->set_epoch(epoch);
      message.mutable_fetching()->set_bytes(bytes);
      report_(std::move(message));
    };
    options.retried = [&](const std::string& sentence) {
      v1::ExecutorMessage message;
      message.mutable_fetching()->set_epoch(epoch);
      message.mutable_fetching()->set_bytes(bytes);
      message.mutable_fetching()->set_retried(base::TruncateUtf8(sentence, kMaxRetriedBytes));
      report_(std::move(message));
    };
    FUSIONLLM_RETURN_IF_ERROR(FetchData(workload_->data, options));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(auto data, base::AsBadInputIfPermanent(workload::DatasetSource::Open(*workload_)));
  if (!data_reported_) {
    data_reported_ = true;
    v1::ExecutorMessage message;
    v1::DataOpened& opened = *message.mutable_data_opened();
    opened.set_summary(data->Summary());
    const auto add = [](const data::FilesRead& files, auto* out) {
      for (const data::FilesRead::File& file : files.first) {
        v1::DataFile& file_report = *out->Add();
        file_report.set_path(file.path);
        file_report.set_bytes(file.bytes);
      }
    };
    add(data->TrainingFiles(), opened.mutable_files());
    add(data->ValidationFiles(), opened.mutable_validation_files());
    opened.set_contents(ContentsOf(data->TrainingFiles(), data->TrainingSamples()));
    opened.set_validation_contents(ContentsOf(data->ValidationFiles(), data->EvaluationSamples().value_or(0)));
    report_(std::move(message));
  }
  return data;
}

}  // namespace fusionllm::services
