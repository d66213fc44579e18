#include "services/broker/broker_setup.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/log.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/job/parse.h"
#include "lib/transport/shared_buckets.h"
#include "services/broker/checkpoints.h"
#include "services/broker/enrollment.h"
#include "services/broker/plan_client.h"
#include "services/broker/profiles_document.h"
#include "services/broker/take_over.h"
#include "services/credentials.h"
#include "services/machine_identity.h"
#include "services/version.h"

namespace fusionllm::services {
namespace {

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Every resource that a topology's paths name, with its rate.
absl::Status CreateLinkState(const job::LinkTable& links, const std::string& path) {
  std::map<std::string, double> rates;
  for (const job::LinkTable::Place& from : links.devices()) {
    for (const job::LinkTable::Place& to : links.devices()) {
      if (from.device.name == to.device.name) continue;
      FUSIONLLM_ASSIGN_OR_RETURN(const job::EffectiveLink link, links.Between(from.device.name, to.device.name));
      for (const job::LinkResource& resource : link.path) rates[resource.name] = static_cast<double>(resource.bandwidth.bits_per_s) / 8;
    }
  }
  std::vector<transport::BucketSpec> buckets;
  for (const auto& [name, rate] : rates) buckets.push_back({.name = name, .bytes_per_s = rate});
  return transport::SharedBuckets::Create(path, buckets).status();
}

bool IsText(const job::Spec& spec) { return spec.data.kind == job::DataKind::kText || spec.data.kind == job::DataKind::kTokens; }

int64_t TargetsPerStep(const job::Spec& spec) {
  return spec.training.global_batch_size * (IsText(spec) ? spec.training.sequence_length : 1);
}

PlanFunction PlanFunctionOf(const BrokerFlags& flags, const Credentials& credentials, const job::FusionJob& job,
                            const std::string& job_document) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  return AskScheduler({.channel = grpc::CreateCustomChannel(flags.scheduler_address, credentials.channel, arguments),
                       .job = job,
                       .job_document = job_document,
                       .base_directory = flags.base_directory,
                       .data_device = flags.data_device,
                       .open = flags.open});
}

absl::Status AddKnownProfiles(const std::string& file, const job::FusionJob& job, const std::optional<job::LinkTable>& topology,
                              broker::RunOptions& options) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string text, ReadText(file));
  const absl::Status status =
      TakeKnownProfiles(text, job::ToString(job.spec.strategy.backend), topology.has_value() ? &*topology : nullptr, options);
  return status.ok() ? status : absl::InvalidArgumentError(absl::StrCat(file, ": ", std::string(status.message())));
}

// What the job starts from, as an absolute path; empty: nothing.
std::string InitFrom(const job::FusionJob& job, const std::string& base_directory) {
  const std::optional<std::string>& from = job.spec.model.init.from;
  return from.has_value() ? (std::filesystem::path(base_directory) / *from).string() : "";
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
  setup.attendance.welcome.set_shared_token_file(setup.shared_folder.file());
  setup.attendance.welcome.set_shared_token(setup.shared_folder.token());
  setup.attendance.welcome.set_machine(MachineIdentity());
}

}  // namespace

absl::StatusOr<BrokerSetup> SetUp(const BrokerFlags& flags, metrics::Registry& registry) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string job_text, ReadText(flags.job_file));
  FUSIONLLM_ASSIGN_OR_RETURN(const job::FusionJob job, job::ParseFusionJob(job_text, flags.job_file));
  FUSIONLLM_ASSIGN_OR_RETURN(const Credentials credentials, LoadCredentials(flags.tls_directory, "broker"));
  BrokerSetup setup{.credentials = credentials.enrolling_server};

  v1::Welcome& welcome = setup.attendance.welcome;
  welcome.set_job_document(job_text);
  welcome.set_output_directory(flags.output_directory);
  welcome.set_base_directory(flags.base_directory);
  RunLoopOptions loop_options{
      .job = job, .job_hash = base::StableHash(job_text), .data_device = flags.data_device, .gather_seconds = flags.gather_seconds};
  loop_options.profiles_file = absl::StrCat(flags.output_directory, "/profiles.json");
  std::optional<job::LinkTable> links;
  if (!flags.topology_file.empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string topology_text, ReadText(flags.topology_file));
    FUSIONLLM_ASSIGN_OR_RETURN(const job::Topology topology, job::ParseTopology(topology_text, flags.topology_file));
    FUSIONLLM_ASSIGN_OR_RETURN(links, job::LinkTable::Create(topology));
    welcome.set_topology_document(topology_text);
    for (const job::LinkTable::Place& place : links->devices()) {
      loop_options.order_of_device.emplace(place.device.name, static_cast<int>(loop_options.order_of_device.size()));
      loop_options.site_of_device[place.device.name] = topology.spec.sites[place.site].name;
    }
    // A broker that takes over finds the state that the executors are already using.
    if (!flags.resume_journal) FUSIONLLM_RETURN_IF_ERROR(CreateLinkState(*links, absl::StrCat(flags.output_directory, "/links.state")));
  }
  setup.attendance.build_version = kBuildVersion;
  setup.attendance.require_certificate = credentials.secure;

  broker::RunOptions run_options{.expected = {flags.expected.begin(), flags.expected.end()},
                                 .min_executors = flags.min_executors,
                                 .data_device = flags.data_device,
                                 .excluded = {job.spec.strategy.exclude.begin(), job.spec.strategy.exclude.end()},
                                 .total_steps = job.spec.training.steps,
                                 .checkpoints = job.spec.checkpoint.has_value(),
                                 .gone = {flags.gone.begin(), flags.gone.end()}};
  if (job.spec.placement.min_memory.has_value()) run_options.least_memory_bytes = job.spec.placement.min_memory->bytes;
  if (links.has_value()) run_options.lines = LinesOf(*links);
  if (!flags.profiles_file.empty()) FUSIONLLM_RETURN_IF_ERROR(AddKnownProfiles(flags.profiles_file, job, links, run_options));
  std::vector<std::string> skipped;
  std::string changed;
  if (job.spec.checkpoint.has_value()) {
    loop_options.checkpoint_directory = CheckpointDirectory(job, flags.output_directory);
    FUSIONLLM_RETURN_IF_ERROR(CleanUp(loop_options.checkpoint_directory, flags.resume_journal));
    if (!flags.fresh) {
      FUSIONLLM_ASSIGN_OR_RETURN(const CheckpointFound found, FindCheckpoint(job, loop_options.checkpoint_directory, flags.base_directory));
      run_options.start_step = found.step;
      run_options.start_checkpoint = found.path;
      skipped = found.skipped;
      changed = found.changed;
    }
  }

  ShareFolder(loop_options.checkpoint_directory.empty() ? flags.output_directory : loop_options.checkpoint_directory, setup);
  setup.exchange = std::make_unique<CheckpointExchange>(CheckpointExchangeOptions{.checkpoint_directory = loop_options.checkpoint_directory,
                                                                                  .init_from = InitFrom(job, flags.base_directory),
                                                                                  .total_steps = job.spec.training.steps,
                                                                                  .require_certificate = credentials.secure});
  loop_options.exchange = setup.exchange.get();

  JournalState past;
  const std::string journal_path = absl::StrCat(flags.output_directory, "/broker.journal");
  if (!flags.resume_journal) FUSIONLLM_RETURN_IF_ERROR(Journal::Discard(journal_path));
  FUSIONLLM_ASSIGN_OR_RETURN(Journal journal, Journal::Open(journal_path, &past));
  std::map<int64_t, std::string> taken_up;  // steps and folders
  const bool adopt = flags.resume_journal && past.epoch > 0 && !past.ended;
  if (adopt) {
    run_options.last_epoch = past.epoch;
    if (!past.checkpoint_path.empty()) {
      run_options.start_step = past.checkpoint_step;
      run_options.start_checkpoint = past.checkpoint_path;
    }
    taken_up = TakeUpCommitted(loop_options.checkpoint_directory, past, run_options);
  }
  if (!loop_options.checkpoint_directory.empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(loop_options.first_sequence, FirstSequence(loop_options.checkpoint_directory, run_options.start_checkpoint));
  }
  broker::RunState state(run_options);
  RunLog log(stdout, TargetsPerStep(job.spec), job.spec.training.global_batch_size);
  if (adopt) {
    state.Adopt(past.epoch, past.plan, past.profiles, past.links, past.last_step, past.shards, past.ended_at, past.codec_limit);
    log.Recall(past);
    for (const auto& [step, path] : taken_up) log.Event({.reason = "CheckpointSaved", .step = step, .message = path});
  } else {
    for (const std::string& sentence : skipped) {
      log.Event({.reason = "CheckpointSkipped", .step = run_options.start_step, .message = sentence});
    }
    if (!changed.empty()) {
      log.Event({.reason = "JobChanged",
                 .step = run_options.start_step,
                 .message = absl::StrCat("the checkpoint was made by another form of this job; now ", changed)});
    }
  }
  setup.probe = std::make_unique<RunProbe>(registry, RunProbeOptions{.targets_per_step = TargetsPerStep(job.spec),
                                                                     .samples_per_step = job.spec.training.global_batch_size,
                                                                     .total_steps = job.spec.training.steps,
                                                                     .text = IsText(job.spec)});
  setup.loop = std::make_unique<RunLoop>(std::move(loop_options), std::move(state), std::move(journal), std::move(log),
                                         PlanFunctionOf(flags, credentials, job, job_text), *setup.probe);
  setup.exchange->OnProgress([loop = setup.loop.get()] { loop->OnTransferProgress(); });
  setup.enroll = [](const v1::EnrollRequest&, const NameInUse&) -> absl::StatusOr<v1::EnrollResponse> {
    return absl::UnimplementedError("this run takes no executors from other machines: it was not started with --listen");
  };
  if (flags.open) {
    if (!credentials.secure) return absl::InvalidArgumentError("--open needs --tls: executors of other machines are known by certificates");
    FUSIONLLM_ASSIGN_OR_RETURN(Enrollment enrollment,
                               Enrollment::Load(flags.tls_directory, {flags.expected.begin(), flags.expected.end()}, job_text));
    setup.enroll = [enrollment = std::make_shared<Enrollment>(std::move(enrollment))](const v1::EnrollRequest& request,
                                                                                      const NameInUse& in_use) {
      return enrollment->Enroll(request, in_use, absl::Now());
    };
  }
  return setup;
}

}  // namespace fusionllm::services
