#include "services/broker/broker_setup.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "lib/archive/fetch_latest.h"
#include "lib/base/exit_code.h"
#include "lib/base/log.h"
#include "lib/base/object_uri.h"
#include "lib/base/philox.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/catalog.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/site_store.h"
#include "lib/job/data_rules.h"
#include "lib/job/initial_model.h"
#include "lib/job/parse.h"
#include "lib/job/store_use.h"
#include "lib/objectstore/settings.h"
#include "lib/workload/forward_graph.h"
#include "lib/workload/remote_start.h"
#include "lib/workload/stored_parameters.h"
#include "services/broker/auth_interceptor.h"
#include "services/broker/checkpoints.h"
#include "services/broker/enrollment.h"
#include "services/broker/failover.h"
#include "services/broker/link_state.h"
#include "services/broker/model_memory.h"
#include "services/broker/plan_client.h"
#include "services/broker/profiles_document.h"
#include "services/broker/startup_events.h"
#include "services/checkpoint_directory.h"
#include "services/checkpoint_folders.h"
#include "services/credentials.h"
#include "services/machine_identity.h"
#include "services/version.h"

namespace fusionllm::services {
namespace {

// More is no job, topology or profile that anybody reads.
constexpr int64_t kMaxInputBytes = int64_t{64} << 20;
absl::StatusOr<std::string> ReadText(const std::string& path) { return base::ReadSmallFile(path, kMaxInputBytes); }

bool IsText(const job::Spec& spec) { return spec.data.kind == job::DataKind::kText || spec.data.kind == job::DataKind::kTokens; }

int64_t TargetsPerStep(const job::Spec& spec) {
  return spec.training.global_batch_size * (IsText(spec) ? spec.training.sequence_length : 1);
}

PlanFunction PlanFunctionOf(const BrokerFlags& flags, const Credentials& credentials, const job::FusionJob& job,
                            const std::string& job_document) {
  return SchedulerPlanFunction({.channel = SchedulerChannel(flags.scheduler_address, credentials.channel),
                                .job = job,
                                .job_document = job_document,
                                .base_directory = flags.base_directory,
                                .allow_join = flags.allow_join});
}

absl::Status AddKnownProfiles(const std::string& file, const job::FusionJob& job, const std::optional<job::LinkTable>& topology,
                              broker::RunOptions& options) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string text, ReadText(file));
  const absl::Status status =
      TakeKnownProfiles(text, job::ToString(job.spec.strategy.backend), topology.has_value() ? &*topology : nullptr, options);
  return status.ok() ? status : absl::InvalidArgumentError(absl::StrCat(file, ": ", std::string(status.message())));
}

// Without the mark all executors send their shards, which works as well.
void ShareFolder(const std::string& folder, BrokerSetup& setup) {
  absl::StatusOr<SharedFolder> shared = SharedFolder::Mark(folder);
  if (!shared.ok()) {
    base::Log(base::LogLevel::kWarning,
              absl::StrCat("executors cannot write their shards by themselves: ", std::string(shared.status().message())));
    return;
  }
  setup.shared_folder = *std::move(shared);
  setup.sessions.welcome.set_shared_token_file(setup.shared_folder.file());
  setup.sessions.welcome.set_shared_token(setup.shared_folder.token());
  setup.sessions.welcome.set_machine(MachineIdentity());
}

// For a site of which no executor is there. Where whole copies are kept little is lost by going on without it. Else all steps may be: then
// it is worth the time in which a cluster puts a Pod on another node.
std::chrono::milliseconds SiteAbsenceTimeout(bool has_copies) { return has_copies ? std::chrono::minutes(1) : std::chrono::minutes(10); }

// What a run goes on from where a checkpoint cannot be restored.
FindFallbackFunction AnotherCheckpointOf(const job::FusionJob& job, const BrokerFlags& flags, const std::string& directory,
                                         const DeferredEventSink& emit) {
  return [job, directory, emit, output = flags.output_directory,
          base = flags.base_directory](const checkpoint::CheckpointFilter& eligible) -> absl::StatusOr<CheckpointFound> {
    // Places of its own: those of the run's archives are in use.
    FUSIONLLM_ASSIGN_OR_RETURN(const auto mirrors,
                               CheckpointMirrors::Make(job, output, objectstore::ProcessEnvironment, {}, ForwardTo(emit)));
    return FindFallbackCheckpoint(job, directory, base, mirrors->targets(), eligible);
  };
}

// Reads one thing after the other; what it makes of them ends up in `setup`.
class Preparation {
 public:
  Preparation(const BrokerFlags& flags, metrics::Registry& registry) : flags_(flags), registry_(registry) {}

  absl::StatusOr<BrokerSetup> Run() {
    FUSIONLLM_RETURN_IF_ERROR(ReadJob());
    FUSIONLLM_RETURN_IF_ERROR(CheckStore());
    FUSIONLLM_RETURN_IF_ERROR(ReadTopology());
    FUSIONLLM_RETURN_IF_ERROR(SetRunOptions());
    FUSIONLLM_RETURN_IF_ERROR(ChooseStart());
    KeepDataRules();
    FUSIONLLM_RETURN_IF_ERROR(OpenExchange());
    FUSIONLLM_RETURN_IF_ERROR(MakeLoop());
    FUSIONLLM_RETURN_IF_ERROR(AdmitOthers());
    return std::move(setup_);
  }

 private:
  absl::Status ReadJob() {
    FUSIONLLM_ASSIGN_OR_RETURN(job_text_, ReadText(flags_.job_file));
    FUSIONLLM_ASSIGN_OR_RETURN(job_, job::ParseFusionJob(job_text_, flags_.job_file));
    FUSIONLLM_RETURN_IF_ERROR(CheckServedPlaintext(flags_.tls_directory, flags_.insecure, flags_.listen_address));
    FUSIONLLM_ASSIGN_OR_RETURN(credentials_, LoadCredentials(flags_.tls_directory, "broker"));
    setup_.credentials = credentials_.enrolling_server;
    setup_.sessions.build_version = kBuildVersion;
    setup_.sessions.attempt = flags_.attempt;
    setup_.sessions.require_certificate = credentials_.secure;
    v1::Welcome& welcome = setup_.sessions.welcome;
    welcome.set_job_document(job_text_);
    welcome.set_output_directory(flags_.output_directory);
    welcome.set_base_directory(flags_.base_directory);
    loop_options_.job = job_;
    loop_options_.job_hash = base::StableHash(job_text_);
    loop_options_.data_devices = {flags_.data_devices.begin(), flags_.data_devices.end()};
    loop_options_.join_timeout_seconds = flags_.join_timeout_seconds;
    loop_options_.events_in_log = flags_.events_in_log;
    loop_options_.profiles_file = absl::StrCat(flags_.output_directory, "/profiles.json");
    return absl::OkStatus();
  }

  // What the environment lacks for it the next start lacks, too.
  absl::Status CheckStore() const {
    if (!job::BrokerNeedsStore(job_.spec)) return absl::OkStatus();
    const absl::Status settings = objectstore::SettingsFrom(objectstore::ProcessEnvironment).status();
    return settings.ok() ? settings : absl::FailedPreconditionError(settings.message());
  }

  absl::Status ReadTopology() {
    if (flags_.topology_file.empty()) return absl::OkStatus();
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string text, ReadText(flags_.topology_file));
    FUSIONLLM_ASSIGN_OR_RETURN(const job::Topology topology, job::ParseTopology(text, flags_.topology_file));
    FUSIONLLM_ASSIGN_OR_RETURN(links_, job::LinkTable::Create(topology));
    setup_.sessions.welcome.set_topology_document(text);
    for (const job::LinkTable::Place& place : links_->devices()) {
      loop_options_.order_of_device.emplace(place.device.name, static_cast<int>(loop_options_.order_of_device.size()));
      loop_options_.site_of_device[place.device.name] = topology.spec.sites[place.site].name;
      if (place.device.memory.has_value()) loop_options_.memory_of_device[place.device.name] = place.device.memory->bytes;
    }
    // A broker that takes over finds the state that the executors are already using.
    if (flags_.resume_journal) return absl::OkStatus();
    return CreateLinkState(*links_, absl::StrCat(flags_.output_directory, "/links.state"));
  }

  absl::Status SetRunOptions() {
    run_options_ = {
        .expected = {flags_.expected.begin(), flags_.expected.end()},
        .min_executors = flags_.min_executors,
        .data_devices = {flags_.data_devices.begin(), flags_.data_devices.end()},
        .data_timeout_s = flags_.data_timeout_seconds,
        .excluded = {job_.spec.strategy.exclude.begin(), job_.spec.strategy.exclude.end()},
        .stages_asked = job_.spec.strategy.stages,
        .executors_asked = job_.spec.executors.min,
        .total_steps = job_.spec.training.steps,
        .checkpoints = job_.spec.checkpoint.has_value(),
        .guard = job_.spec.compression.guard,
        .codecs_asked_for = job_.spec.compression.policy != job::CompressionPolicy::kNone && job_.spec.compression.codec.kind.has_value(),
        .lost_executors = {flags_.lost_executors.begin(), flags_.lost_executors.end()}};
    if (flags_.executor_timeout_seconds > 0) {
      run_options_.waits_for_executors = true;
      run_options_.executor_timeout_s = flags_.executor_timeout_seconds;
    }
    if (job_.spec.placement.min_memory.has_value()) run_options_.min_executor_memory_bytes = job_.spec.placement.min_memory->bytes;
    if (links_.has_value()) run_options_.link_names = LinkNamesOf(*links_);
    if (flags_.profiles_file.empty()) return absl::OkStatus();
    return AddKnownProfiles(flags_.profiles_file, job_, links_, run_options_);
  }

  absl::Status ChooseStart() {
    if (!job_.spec.checkpoint.has_value()) return absl::OkStatus();
    loop_options_.checkpoint_directory = CheckpointDirectory(job_.spec.checkpoint->path, flags_.output_directory);
    setup_.checkpoint_directory = loop_options_.checkpoint_directory;
    FUSIONLLM_RETURN_IF_ERROR(CheckCheckpointFolders(job_, flags_.output_directory));
    FUSIONLLM_RETURN_IF_ERROR(CleanUp(loop_options_.checkpoint_directory, flags_.resume_journal));
    FUSIONLLM_ASSIGN_OR_RETURN(setup_.mirrors, CheckpointMirrors::Make(
                                                   job_, flags_.output_directory, objectstore::ProcessEnvironment,
                                                   [this](int64_t n) { news_(n); }, ForwardTo(emit_)));
    if (flags_.fresh) return GoAboveOthers();
    // A broker that takes a run over asks no store for what the run has at hand.
    std::vector<archive::MirrorTarget*> places = setup_.mirrors->targets();
    if (flags_.resume_journal && HasCheckpoints()) places.clear();
    if (std::string& resume = job_.spec.checkpoint->resume; base::IsUri(resume)) {
      FUSIONLLM_ASSIGN_OR_RETURN(resume, Fetched("spec.checkpoint.resume", resume));
    }
    // Read only to begin with; what a broker that takes over finds unreadable was lost under the run (ExitCodeOfSetUp in final_report.h).
    absl::StatusOr<CheckpointFound> found = FindCheckpoint(job_, loop_options_.checkpoint_directory, flags_.base_directory, places);
    // Where spec.checkpoint.resume names nothing.
    if (absl::IsNotFound(found.status()) && !HasBegun()) found = absl::FailedPreconditionError(found.status().message());
    FUSIONLLM_ASSIGN_OR_RETURN(start_, OfNamedPlace(std::move(found)));
    run_options_.start_step = start_.step;
    run_options_.start_checkpoint = start_.path;
    run_options_.micro_batch_size = start_.micro_batch_size;
    run_options_.codec_limit = start_.codec_limit;
    run_options_.codec_limits = start_.codec_limits;
    return start_.path.empty() ? GoAboveOthers() : absl::OkStatus();
  }

  // What the job leaves open is as the checkpoint's run had it, and is written into those of this one.
  void KeepDataRules() {
    job::FusionJob& job = loop_options_.job;
    const job::Data before = job.spec.data;
    const bool goes_on = start_.made_by.has_value();
    const job::DataRules rules = goes_on ? job::DataRulesOfCheckpoint(start_.made_by->spec.data) : job::DataRules{};
    job::FixDataRules(rules, job.spec.data);
    job::FixDataRules(rules, job_.spec.data);
    if (job::DataRulesOf(job.spec.data) == job::DataRulesOf(before)) return;
    // Other than what everybody makes of the job's text.
    job_text_ = job::ToYaml(job);
    setup_.sessions.welcome.set_job_document(job_text_);
    loop_options_.job_hash = base::StableHash(job_text_);
    rules_kept_ = absl::StrFormat(
        "the checkpoint's run had %s, and this one keeps to it; with spec.data.encoding and spec.data.validation.split written down the "
        "job has its own",
        absl::StrJoin(job::FieldsOfRules(rules, before), " and "));
  }

  bool KeptInStore() const { return job_.spec.checkpoint.has_value() && base::IsUri(job_.spec.checkpoint->path); }

  bool SavesCheckpoints() const { return job_.spec.checkpoint.has_value() && job_.spec.checkpoint->every_steps > 0; }

  // With a checkpoint of the run's folder; spec.checkpoint.resume may name another.
  bool BeginsWithItsOwn() const {
    const std::filesystem::path start = run_options_.start_checkpoint, own = loop_options_.checkpoint_directory;
    return !start.empty() && start.parent_path().lexically_normal() == own.lexically_normal();
  }

  bool HasCheckpoints() const {
    const auto newest = checkpoint::FindLatestComplete(loop_options_.checkpoint_directory);
    return newest.ok() && newest->path.has_value();
  }

  // A run that begins at step 0 numbers its checkpoints behind those that others have left in its places, and removes none of them.
  absl::Status GoAboveOthers() {
    FUSIONLLM_ASSIGN_OR_RETURN(const int64_t newest, OfNamedPlace(archive::LatestSequence(setup_.mirrors->targets())));
    others_sequence_ = newest == 0 ? 0 : newest + 1;
    return absl::OkStatus();
  }

  // A place that cannot be reached may be reached later; what else is wrong with it, or with a file, is the user's to mend, and so is a
  // checkpoint that this job may not begin with. One that refuses us will again.
  template <typename T>
  static absl::StatusOr<T> OfNamedPlace(absl::StatusOr<T> result) {
    const absl::Status& why = result.status();
    if (absl::IsUnavailable(why) || absl::IsFailedPrecondition(why) || absl::IsPermissionDenied(why)) return result;
    return base::AsBadInput(std::move(result));
  }

  absl::StatusOr<std::string> Fetched(const char* field, const std::string& uri) {
    absl::StatusOr<std::string> path = FetchCheckpoint(
        uri, absl::StrCat(flags_.output_directory, "/", kFetchedObjects), objectstore::ProcessEnvironment, [this](int64_t n) { news_(n); },
        *emit_);
    if (path.ok()) return path;
    return OfNamedPlace(
        absl::StatusOr<std::string>(absl::Status(path.status().code(), absl::StrCat(field, ": ", std::string(path.status().message())))));
  }

  // What the job starts from, as an absolute path here; empty: nothing.
  absl::StatusOr<std::string> InitFrom() {
    const std::optional<std::string>& from = job_.spec.model.init.from;
    if (!from.has_value()) return "";
    if (!base::IsUri(*from)) return (std::filesystem::path(flags_.base_directory) / *from).string();
    if (!start_.path.empty()) return "";  // it is not asked for
    if (!HasBegun()) FUSIONLLM_RETURN_IF_ERROR(CheckRemoteStart(*from));
    return Fetched("spec.model.init.from", *from);
  }

  // With a broker before this one, which has seen that the start fits. In a cluster the first, too, is asked to take over.
  bool HasBegun() const {
    std::error_code none;
    return flags_.resume_journal && std::filesystem::file_size(absl::StrCat(flags_.output_directory, "/broker.journal"), none) > 0 && !none;
  }

  // By its headers, before gigabytes of what does not fit are fetched. The first that has the credentials: a fusionctl that hands a job to
  // a cluster need not.
  absl::Status CheckRemoteStart(const std::string& from) const {
    const absl::StatusOr<opdag::Graph> graph = workload::BuildForwardGraph(job_, flags_.base_directory);
    if (!graph.ok()) return absl::OkStatus();  // said where it is needed
    const auto retried = [this](const std::string& sentence) { (*emit_)(StoreRetried(sentence)); };
    const absl::Status fits = workload::CheckRemoteStart(job_, *graph, from, retried).status();
    if (fits.ok() || absl::IsUnavailable(fits)) return fits;
    const bool of_another = absl::IsInvalidArgument(fits) || absl::IsUnimplemented(fits) || absl::IsDataLoss(fits);
    return absl::Status(of_another ? absl::StatusCode::kFailedPrecondition : fits.code(),
                        absl::StrCat("spec.model.init.from: ", fits.message()));
  }

  // Before anything of an earlier run is overwritten. A run that is taken over has begun with all of it.
  absl::Status CheckBeginning() const {
    FUSIONLLM_RETURN_IF_ERROR(workload::CheckCanStartFrom(start_));
    if (init_from_.empty() || !start_.path.empty()) return absl::OkStatus();
    if (const absl::Status described = job::CheckInitialModel(job_, init_from_); !described.ok()) {
      return absl::FailedPreconditionError(described.message());
    }
    const absl::StatusOr<opdag::Graph>& graph = loop_options_.graph;
    const absl::StatusOr<checkpoint::CheckpointReader> start = checkpoint::CheckpointReader::Open(init_from_);
    if (absl::IsInvalidArgument(start.status()) || absl::IsUnimplemented(start.status()) || absl::IsDataLoss(start.status())) {
      return absl::FailedPreconditionError(absl::StrCat("spec.model.init.from: ", start.status().message()));
    }
    if (!graph.ok() || !start.ok()) return absl::OkStatus();  // executors may see what is not to be seen here, and say what is wrong
    const absl::StatusOr<std::vector<std::string>> fits = workload::CheckStart(job_, *graph, *start);
    if (!fits.ok()) return absl::FailedPreconditionError(absl::StrCat("spec.model.init.from: ", fits.status().message()));
    for (const std::string& warning : *fits) base::Log(base::LogLevel::kWarning, absl::StrCat("spec.model.init.from: ", warning));
    return absl::OkStatus();
  }

  absl::Status OpenExchange() {
    FUSIONLLM_ASSIGN_OR_RETURN(init_from_, InitFrom());
    const std::string& checkpoints = loop_options_.checkpoint_directory;
    ShareFolder(checkpoints.empty() ? flags_.output_directory : checkpoints, setup_);
    setup_.shard_fetcher = std::make_unique<ShardFetcher>(ShardFetcherOptions{
        .absence_timeout =
            SiteAbsenceTimeout(KeptInStore() || (job_.spec.checkpoint.has_value() && job_.spec.checkpoint->replica.has_value())),
        .fixed_executors = flags_.closed});
    setup_.exchange = std::make_unique<CheckpointExchange>(CheckpointExchangeOptions{.checkpoint_directory = checkpoints,
                                                                                     .init_from = init_from_,
                                                                                     .total_steps = job_.spec.training.steps,
                                                                                     .require_certificate = credentials_.secure,
                                                                                     .shard_fetcher = setup_.shard_fetcher.get(),
                                                                                     .calls = setup_.calls.get()});
    setup_.sessions.calls = setup_.calls.get();
    loop_options_.exchange = setup_.exchange.get();
    loop_options_.graph = workload::BuildForwardGraph(job_, flags_.base_directory);
    if (loop_options_.graph.ok()) run_options_.min_model_memory = MinModelMemoryOf(*loop_options_.graph, job_.spec);
    loop_options_.shard_fetcher = setup_.shard_fetcher.get();
    if (checkpoints.empty()) return absl::OkStatus();
    setup_.sessions.add_to_welcome = [checkpoints](const v1::Hello& hello, v1::Welcome& welcome) {
      if (!hello.holds_shards()) return;
      const absl::StatusOr<checkpoint::ShardsId> id = checkpoint::ShardsIdOf(checkpoints);
      if (!id.ok()) {
        base::Log(base::LogLevel::kWarning, absl::StrCat("shards of ", hello.name(), " come here: ", id.status().message()));
        return;
      }
      welcome.set_shards_id(id->id);
      if (id->copied_id.empty()) return;
      base::Log(base::LogLevel::kWarning,
                absl::StrFormat("%s is a copy of %s: what it saves from now on lies in sites under shards/%s. What it has under shards/%s "
                                "can be read until the other folder has it no more",
                                checkpoints, id->copied_from, id->id, id->copied_id));
    };
    return absl::OkStatus();
  }

  absl::Status MakeLoop() {
    JournalState past;
    const std::string journal_path = absl::StrCat(flags_.output_directory, "/broker.journal");
    if (!flags_.resume_journal) {
      FUSIONLLM_RETURN_IF_ERROR(CheckBeginning());
      FUSIONLLM_RETURN_IF_ERROR(Journal::Discard(journal_path));
    }
    FUSIONLLM_ASSIGN_OR_RETURN(Journal journal, Journal::Open(journal_path, &past));
    const bool adopt = flags_.resume_journal && past.epoch > 0 && !past.ended;
    if (flags_.resume_journal && !adopt) FUSIONLLM_RETURN_IF_ERROR(CheckBeginning());
    std::map<int64_t, std::string> taken_up;  // steps and folders
    if (adopt) {
      run_options_.last_epoch = past.epoch;
      if (!past.checkpoint_path.empty()) {
        run_options_.start_step = past.checkpoint_step;
        run_options_.start_checkpoint = past.checkpoint_path;
      }
      taken_up = RecoverCommitted(loop_options_.checkpoint_directory, past, run_options_);
    }
    if (const std::string& folder = loop_options_.checkpoint_directory; !folder.empty()) {
      FUSIONLLM_ASSIGN_OR_RETURN(loop_options_.first_sequence, FirstSequence(folder, run_options_.start_checkpoint));
      loop_options_.first_sequence = std::max(loop_options_.first_sequence, others_sequence_);
      loop_options_.contents = workload::FingerprintInputs(job_, flags_.base_directory);
      loop_options_.contents.merge(start_.contents);
      loop_options_.find_fallback = AnotherCheckpointOf(job_, flags_, folder, emit_);
      loop_options_.on_checkpoint = [mirrors = setup_.mirrors.get()](const std::string& path, int64_t step) { mirrors->Offer(path, step); };
    }
    const std::string checkpoints = loop_options_.checkpoint_directory;
    const int64_t first_sequence = loop_options_.first_sequence;
    setup_.run_metrics = std::make_unique<RunMetrics>(registry_, RunMetricsOptions{.targets_per_step = TargetsPerStep(job_.spec),
                                                                                   .samples_per_step = job_.spec.training.global_batch_size,
                                                                                   .total_steps = job_.spec.training.steps,
                                                                                   .text = IsText(job_.spec),
                                                                                   .saves_checkpoints = SavesCheckpoints(),
                                                                                   .stored_remotely = KeptInStore()});
    broker::RunState state(run_options_);
    RunLog log(stdout, TargetsPerStep(job_.spec), job_.spec.training.global_batch_size);
    if (adopt) {
      state.Adopt(past.epoch, past.plan, past.profiles, past.links, past.last_step, past.shards, past.ended_at, past.codec_limit,
                  past.codec_limits);
      log.RestoreFrom(past);
      FUSIONLLM_RETURN_IF_ERROR(LogAndRecord(taken_up, log, journal));
    } else {
      for (const broker::EmitEvent& news : StartupEvents(start_, run_options_.start_step, rules_kept_)) {
        log.Event(news);
        setup_.run_metrics->Event(news);
      }
    }
    if (!KeptInStore() && BeginsWithItsOwn()) setup_.run_metrics->CheckpointFound(run_options_.start_step);
    setup_.loop = std::make_unique<RunLoop>(std::move(loop_options_), std::move(state), std::move(journal), std::move(log),
                                            PlanFunctionOf(flags_, credentials_, job_, job_text_), *setup_.run_metrics);
    if (setup_.mirrors != nullptr) {
      setup_.mirrors->Start(
          first_sequence, [loop = setup_.loop.get()](broker::EmitEvent news) { loop->LogEvent(std::move(news)); },
          [run_metrics = setup_.run_metrics.get()](int64_t step) { run_metrics->CheckpointStored(step); },
          [fetcher = setup_.shard_fetcher.get()](const std::string& folder, const std::vector<checkpoint::FileEntry>& files,
                                                 const std::stop_token& stop, const std::function<void()>& moved) {
            for (const checkpoint::FileEntry& file : files) {
              FUSIONLLM_RETURN_IF_ERROR(fetcher->FetchShard(
                  folder, file, [&stop] { return stop.stop_requested(); }, moved));
            }
            return absl::OkStatus();
          });
      setup_.mirrors->OfferAll(checkpoints, first_sequence);
    }
    RunLoop* const loop = setup_.loop.get();
    *emit_ = [loop](broker::EmitEvent news) { loop->LogEvent(std::move(news)); };
    setup_.exchange->OnProgress([loop] { loop->OnTransferProgress(); });
    setup_.exchange->OnUnusable(
        [loop](uint32_t epoch, const std::string& path, const absl::Status& why) { loop->OnCheckpointUnusable(epoch, path, why); });
    setup_.shard_fetcher->OnProgress([loop] { loop->OnTransferProgress(); });
    setup_.shard_fetcher->OnWaiting([loop](const WaitingForSite& awaited) {
      loop->LogEvent({.reason = "WaitingForSite",
                      .message = absl::StrFormat("%d files of %s lie in site %s, %s among them, and no executor of it that holds shards is "
                                                 "here; one is waited for, %d s more at most",
                                                 awaited.files, awaited.folder, awaited.site, awaited.first, awaited.left.count())});
    });
    setup_.shard_fetcher->OnFetched([loop](const checkpoint::FileEntry& file, const std::string& executor) {
      const auto folder = checkpoint::ParseSiteFolder(file.site_folder);
      loop->LogEvent({.reason = "ShardFetched",
                      .step = folder.has_value() ? folder->step : 0,
                      .message = absl::StrFormat("%s, %d bytes, came from site %s by %s", file.name, file.bytes, file.site, executor)});
    });
    return absl::OkStatus();
  }

  absl::Status AdmitOthers() {
    setup_.enroll = [](const v1::EnrollRequest&, const NameInUse&) -> absl::StatusOr<v1::EnrollResponse> {
      return absl::UnimplementedError(std::string(kEnrollmentDisabled));
    };
    AuthInterceptor::TokenCheck check;
    if (flags_.allow_join) {
      if (!credentials_.secure) {
        return absl::InvalidArgumentError("--allow-join needs --tls: executors of other machines are known by certificates");
      }
      FUSIONLLM_ASSIGN_OR_RETURN(Enrollment loaded,
                                 Enrollment::Load(flags_.tls_directory, {flags_.expected.begin(), flags_.expected.end()}, job_text_));
      const auto enrollment = std::make_shared<Enrollment>(std::move(loaded));
      check = [enrollment](const std::string& token) { return enrollment->CheckToken(token, absl::Now()); };
      setup_.on_connected = [enrollment](const std::string& name) { enrollment->OnConnected(name); };
      setup_.enroll = [enrollment](const v1::EnrollRequest& request, const NameInUse& in_use) {
        return enrollment->Enroll(request, in_use, absl::Now());
      };
      setup_.renew = [enrollment](const std::string& certificate_pem) { return enrollment->Renew(certificate_pem, absl::Now()); };
    }
    if (credentials_.secure) setup_.credentials->SetAuthMetadataProcessor(std::make_shared<AuthInterceptor>(std::move(check)));
    return absl::OkStatus();
  }

  const BrokerFlags& flags_;
  metrics::Registry& registry_;
  std::string job_text_;
  job::FusionJob job_;
  Credentials credentials_;
  std::optional<job::LinkTable> links_;
  CheckpointFound start_;
  std::string rules_kept_;  // a sentence; empty: the job's own
  std::string init_from_;   // a path; empty: nothing
  int64_t others_sequence_ = 0;
  FetchProgressReporter news_;
  const DeferredEventSink emit_ =
      std::make_shared<CheckpointMirrors::EventSink>([](const broker::EmitEvent& news) { RunLog(stdout, 0, 0).Event(news); });
  RunLoopOptions loop_options_;
  broker::RunOptions run_options_;
  BrokerSetup setup_;
};

}  // namespace

absl::StatusOr<BrokerSetup> SetUp(const BrokerFlags& flags, metrics::Registry& registry) { return Preparation(flags, registry).Run(); }

}  // namespace fusionllm::services
