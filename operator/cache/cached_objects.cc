#include "operator/cache/cached_objects.h"

#include <utility>

#include "lib/base/status_macros.h"

namespace fusionllm::op::cache {

absl::StatusOr<kube::ObjectPtr> CachedPod::Decode(absl::string_view text) {
  const auto pod = std::make_shared<CachedPod>();
  FUSIONLLM_RETURN_IF_ERROR(ReadJobPod(text, *pod));
  FUSIONLLM_ASSIGN_OR_RETURN(lifecycle::PodView view, ReadPod(text, /*cluster=*/""));
  // What claims to be a job's by its labels alone takes room as any other pod, and no part in the job.
  pod->job = view.owner.empty() || pod->job == nullptr ? nullptr : OwnedBy(*pod->job, view.owner);
  pod->executor = pod->executor && pod->job != nullptr;
  pod->broker_ = view.role == manifests::kBrokerRole;
  pod->ready_ = view.ready;
  pod->killed_for_memory_ = view.killed_for_memory;
  pod->phase_ = view.phase;
  pod->index_ = view.index;
  pod->container_restarts_ = view.container_restarts;
  pod->attempt_ = view.attempt;
  pod->exit_code_ = view.exit_code;
  pod->deleted_at_ = view.deleted_at;
  pod->address_ = std::move(view.address);
  if (!view.reason.empty() || !view.message.empty() || !view.disruption.empty() || view.report.has_value()) {
    pod->words_ = std::make_unique<const Words>(
        Words{std::move(view.reason), std::move(view.message), std::move(view.disruption), std::move(view.report)});
  }
  return pod;
}

size_t CachedPod::Bytes() const {
  size_t bytes = JobPod::Bytes() + address_.size();
  if (words_ == nullptr) return bytes;
  bytes += sizeof(Words) + words_->reason.size() + words_->message.size() + words_->disruption.size();
  if (const std::optional<lifecycle::Progress>& report = words_->report; report.has_value()) {
    bytes += report->phase.size() + report->slowest_link.size() + report->error.size() + report->reason.size() +
             report->wait_reason.size() + report->wait.size();
  }
  return bytes;
}

lifecycle::PodView CachedPod::View(const std::string& cluster) const {
  static const Words kNone;
  const Words& words = words_ == nullptr ? kNone : *words_;
  return {.ns = meta.ns,
          .name = meta.name,
          .uid = meta.uid,
          .job = job == nullptr ? "" : job->name,
          .owner = job == nullptr ? "" : job->owner,
          .role = broker_ ? manifests::kBrokerRole : manifests::kExecutorRole,
          .cluster = cluster,
          .index = index_,
          .attempt = attempt_,
          .phase = phase_,
          .ready = ready_,
          .created_at = meta.created_at,
          .deleted_at = deleted_at_,
          .exit_code = exit_code_,
          .reason = words.reason,
          .message = words.message,
          .disruption = words.disruption,
          .address = address_,
          .report = words.report,
          .container_restarts = container_restarts_,
          .killed_for_memory = killed_for_memory_};
}

absl::StatusOr<kube::ObjectPtr> CachedOwnerConfigMap::Decode(absl::string_view text) {
  const auto owner_config_map = std::make_shared<CachedOwnerConfigMap>();
  FUSIONLLM_ASSIGN_OR_RETURN(OwnerConfigMapView view, ReadOwnerConfigMap(text, &owner_config_map->meta));
  owner_config_map->job_ = JobRefOf(owner_config_map->meta);
  owner_config_map->meta.DropLabels();
  owner_config_map->epoch_ = view.epoch;
  owner_config_map->preserved_ = view.preserved;
  owner_config_map->prepared_ = std::move(view.prepared);
  owner_config_map->broker_address_ = std::move(view.broker_address);
  Notes notes{.remote_broker_address = std::move(view.remote_broker_address),
              .placement = std::move(view.placement),
              .executor_services = std::move(view.executor_services),
              .waiting = std::move(view.waiting),
              .wanted = view.wanted,
              .executor_addresses = std::move(view.executor_addresses)};
  if (notes != Notes()) owner_config_map->notes_ = std::make_unique<const Notes>(std::move(notes));
  return owner_config_map;
}

size_t CachedOwnerConfigMap::Bytes() const {
  size_t bytes = Object::Bytes() + prepared_.size() + broker_address_.size();
  if (job_ != nullptr) bytes += job_->name.size() + job_->uid.size() + job_->hub.size();
  if (notes_ == nullptr) return bytes;
  bytes += sizeof(Notes) + notes_->remote_broker_address.size() + notes_->placement.size() + notes_->executor_services.size() +
           notes_->waiting.size();
  for (const auto& entry : notes_->executor_addresses) bytes += 2 * sizeof(entry) + entry.first.size() + entry.second.size();
  return bytes;
}

OwnerConfigMapView CachedOwnerConfigMap::View() const {
  static const JobRef kNoJob;
  static const Notes kNone;
  const JobRef& job = job_ == nullptr ? kNoJob : *job_;
  const Notes& notes = notes_ == nullptr ? kNone : *notes_;
  return {.ns = meta.ns,
          .name = meta.name,
          .uid = meta.uid,
          .job = job.name,
          .job_uid = job.uid,
          .hub = job.hub,
          .epoch = epoch_,
          .preserved = preserved_,
          .prepared = prepared_,
          .broker_address = broker_address_,
          .remote_broker_address = notes.remote_broker_address,
          .placement = notes.placement,
          .wanted = notes.wanted,
          .executor_addresses = notes.executor_addresses,
          .executor_services = notes.executor_services,
          .waiting = notes.waiting,
          .terminating = !meta.deletion_timestamp.empty()};
}

}  // namespace fusionllm::op::cache
