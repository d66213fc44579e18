// What the operator exports of its own work. The state of jobs and clusters is FleetMetrics', read from the caches.
// docs/reference/metrics.md lists both.
#pragma once

#include "lib/kube/client/rest_metrics.h"
#include "lib/kube/events/event_recorder.h"
#include "lib/kube/lease/leader_elector.h"
#include "lib/kube/queue/controller.h"
#include "lib/kube/watch/informer_metrics.h"
#include "lib/metrics/registry.h"
#include "operator/controller/job_metrics.h"
#include "operator/controller/orphan_collector.h"
#include "operator/federation/connect_metrics.h"
#include "operator/manager/config_reload.h"

namespace fusionllm::op::manager {

// One for a process; `registry` must outlive it.
struct OperatorMetrics {
  explicit OperatorMetrics(metrics::Registry& registry);

  kube::RestMetrics rest;
  kube::InformerMetrics informers;
  kube::QueueMetrics queues;
  kube::ControllerMetrics controllers;
  kube::EventMetrics events;
  kube::LeaderMetrics leader;
  federation::ConnectMetrics connects;
  controller::OrphanMetrics orphans;
  controller::JobMetrics jobs;
  ConfigMetrics config;
};

}  // namespace fusionllm::op::manager
