// The table of the fields of FusionJob's status (lib/job/schema.h says who reads it).
#pragma once

#include "lib/job/fusion_job_fields.h"
#include "lib/kubeapi/fusion_job_status.h"

namespace fusionllm::kubeapi {

inline constexpr double kMaxCount = 1e9;
inline constexpr size_t kMaxShortText = 256;

template <class V>
void Visit(V& v, ClusterStatus& c) {
  v.Field("name", c.name, {.required = true, .name = true}, "Name of the FusionCluster; of the hub its own name.");
  v.Field("local", c.local, {}, "It is the one that has the job, not a member.");
  v.Field("conditions", c.conditions, {.max_items = kMaxConditions, .list_key = "type"}, "Conditions of the job's part in that cluster.");
  v.Field("state", c.state, {.max_length = kMaxShortText}, "Summary, for printing only: decide on conditions.");
  v.Field("active", c.active, {.min = 0, .max = kMaxCount}, "Executors that exist and have not ended.");
  v.Field("ready", c.ready, {.min = 0, .max = kMaxCount}, "Executors that are ready.");
  v.Field("succeeded", c.succeeded, {.min = 0, .max = kMaxCount}, "Executors that ended well.");
  v.Field("failed", c.failed, {.min = 0, .max = kMaxCount}, "Executors that ended badly.");
  v.Field("terminating", c.terminating, {.min = 0, .max = kMaxCount}, "Executors that are being deleted.");
  v.Field("epoch", c.epoch, {.min = 0}, "The last attempt of the job that used it.");
  v.Field(
      "endpoint", c.endpoint, {.max_length = kMaxShortText},
      "Where executors there are reached from other clusters: HOST:PORT of each, its Service's or its Pod's, as many as fit and how many "
      "more there are, or `relay HOST:PORT` where they only dial out. Absent: nothing outside dials them, or it is not known yet.");
  v.Field("lastHeartbeatTime", c.last_heartbeat_time, {}, "When it was seen connected last, while it is not.");
  v.Field("message", c.message, {}, "What is refused or waited for there, or that it is lost, for people.");
}

template <class V>
void Visit(V& v, Metric& m) {
  v.Field("name", m.name, {.required = true, .max_length = kMaxShortText}, "Name of the figure.");
  v.Field("value", m.value, {.required = true, .max_length = kMaxShortText}, "Value of the figure, as text.");
}

template <class V>
void Visit(V& v, TrainerStatus& t) {
  v.Field("step", t.step, {.min = 0, .max = kMaxCount}, "Optimizer steps that are done.");
  v.Field("steps", t.steps, {.min = 0, .max = kMaxCount}, "Optimizer steps that the job wants in all.");
  v.Field("progressPercentage", t.progress_percentage, {.min = 0, .max = 100}, "Share of the steps that is done, in percent.");
  v.Field("estimatedRemainingSeconds", t.estimated_remaining_seconds, {.min = 0}, "Until the last step, at the pace of the last steps.");
  v.Field("progress", t.progress, {.max_length = kMaxShortText}, "What progressPercentage says, as kubectl prints it.");
  v.Field("eta", t.eta, {.max_length = kMaxShortText}, "What estimatedRemainingSeconds says, as kubectl prints it.");
  v.Field("loss", t.loss, {.max_length = kMaxShortText}, "Loss of the last step.");
  v.Field("tokensPerSecond", t.tokens_per_second, {.max_length = kMaxShortText}, "Pace of the last steps.");
  v.Field("slowestLink", t.slowest_link, {.max_length = kMaxShortText}, "Link that holds the steps up most.");
  v.Field("predictedStepMilliseconds", t.predicted_step_milliseconds, {.min = 0}, "Time of a step as the plan predicted it.");
  v.Field("measuredStepMilliseconds", t.measured_step_milliseconds, {.min = 0}, "Median time of a step.");
  v.Field("metrics", t.metrics, {.max_items = 64, .list_key = "name"},
          "Further figures of the last step: learningRate, and recoveries, the times that the run went on without an executor. "
          "Of a job that has no checkpoint yet: firstStep, the step at which it was seen first.");
  v.Field("lastUpdatedTime", t.last_updated_time, {}, "When these figures were written.");
}

template <class V>
void Visit(V& v, CheckpointStatus& c) {
  v.Field("uri", c.uri, {.required = true}, "Where the newest whole checkpoint is.");
  v.Field("step", c.step, {.min = 0, .max = kMaxCount}, "Step after which it was saved.");
  v.Field("time", c.time, {}, "When it was complete.");
}

template <class V>
void Visit(V& v, PlanStatus& p) {
  v.Field("epoch", p.epoch, {.min = 0}, "Counts the plans of this job.");
  v.Field("stages", p.stages, {.min = 0, .max = job::kMaxExecutors}, "How many stages the pipeline has.");
  v.Field("replicas", p.replicas, {.min = 1, .max = job::kMaxExecutors}, "Pipelines side by side, which share each batch.");
  v.Field("predictedStepMilliseconds", p.predicted_step_milliseconds, {.min = 0},
          "How long a step takes as the plan predicts it, in milliseconds.");
}

template <class V>
void Visit(V& v, FusionJobStatus& s) {
  v.Field("observedGeneration", s.observed_generation, {.min = 0}, "Generation of the spec that this status speaks of.");
  v.Field("state", s.state, {.max_length = kMaxShortText}, "Summary, for printing only: decide on conditions.");
  v.Field("reason", s.reason, {.max_length = 1024}, "Reason of the condition behind state, for printing only.");
  v.Field("conditions", s.conditions, {.max_items = kMaxConditions, .list_key = "type"}, "What is so, and since when.");
  v.Field("startTime", s.start_time, {}, "When the job was first dispatched, or dispatched again after a suspension.");
  v.Field("completionTime", s.completion_time, {}, "When it was complete.");
  v.Field("replicas", s.replicas, {.min = 0, .max = kMaxCount}, "Number of executors that exist.");
  v.Field("readyReplicas", s.ready_replicas, {.min = 0, .max = kMaxCount}, "Executors that are ready.");
  v.Field("selector", s.selector, {}, "Label selector of the executors' Pods, for the scale subresource.");
  v.Field("executors", s.executors, {.max_length = kMaxShortText},
          "Ready and wanted executors, for printing; of a job that is over, those that ran.");
  v.Field("clusters", s.clusters, {.max_length = kMaxShortText},
          "Clusters whose executors are all ready, and clusters used, for printing; of a job that is over, those that it ran on.");
  v.Field(
      "attempt", s.attempt, {.min = 0, .max = kMaxCount},
      "Number of the attempt, from 0: a restart, a resumption and another number of executors begin the next. Pods' names end with it.");
  v.Field("restarts", s.restarts, {.min = 0, .max = kMaxCount},
          "Restarts of the whole job after a failure or a loss, counted or not; resumptions are none.");
  v.Field("restartsCountTowardsMax", s.restarts_count_towards_max, {.min = 0, .max = kMaxCount},
          "Restarts that count towards failurePolicy.maxRestarts.");
  v.Field("clusterStatuses", s.cluster_statuses, {.max_items = job::kMaxClusters, .list_key = "name"},
          "The job's part in each cluster where it has, or has had, one.");
  v.Field("plan", s.plan, {}, "The plan that the run is working by.");
  v.Field("trainerStatus", s.trainer_status, {}, "How far the training is; written at most every ten seconds.");
  v.Field("checkpoint", s.checkpoint, {}, "The newest checkpoint from which the job can go on.");
  v.Field("endpoint", s.endpoint, {.max_length = kMaxShortText},
          "Where executors reach the broker; those of other clusters, if there are any.");
}

}  // namespace fusionllm::kubeapi
