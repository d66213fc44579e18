// The table of FusionJob's fields (schema.h says who reads it). Order here is the order in printed documents and in the reference.
#pragma once

#include "absl/strings/str_cat.h"
#include "lib/job/family_docs.h"
#include "lib/job/fusion_job.h"
#include "lib/scheduler/snapshot.h"

namespace fusionllm::job {

inline constexpr double kMaxSeed = 9007199254740991;  // 2^53 - 1: exact in every JSON reader
inline constexpr double kMaxSteps = 1e9;
inline constexpr double kMaxBatch = 1 << 20;
inline constexpr double kMaxSequence = 1 << 20;
inline constexpr size_t kMaxClusters = 64;

template <class V>
void Visit(V& v, Metadata& m) {
  v.Field("name", m.name, {.required = true},
          "At most 37 lower-case letters, digits and '-', the first a letter, the last not '-'; of a FusionCluster at most 20.");
  v.Field("namespace", m.name_space, {.name = true, .kubernetes_only = true}, "Kubernetes namespace; a FusionCluster has none.");
  v.Field("labels", m.labels, {}, "Labels of the object, by which Kubernetes selects it; a topology or a run on one machine ignores them.");
  v.Field("annotations", m.annotations, {}, "Annotations of the object, which Kubernetes keeps for people and tools.");
}

template <class V>
void Visit(V& v, GraphSource& g) {
  v.Field("file", g.file, {}, "File with the text form of an OP-DAG, relative to the job file.");
  v.Field("inline", g.inline_text, {.max_length = 1 << 19}, "The text form of an OP-DAG itself, in place of a file.");
  v.Field("volume", g.volume, {.kubernetes_only = true},
          "Kubernetes volume source that holds file, such as a configMap. Omitted: data.volume.");
}

template <class V>
void Visit(V& v, Init& i) {
  v.Field("seed", i.seed, {.min = 0, .max = kMaxSeed}, "Seed of the initial parameters.");
  v.Field("from", i.from, {},
          "Checkpoint, folder as Hugging Face has it or .safetensors file to start from, relative to the job file, or its s3://BUCKET/KEY. "
          "Every parameter of the model must be there.");
  v.Field("ignore", i.ignore, {},
          "Patterns over names of tensors of from that the model does not have and that may stay unread; '*' stands "
          "for any text.");
  v.Field("skip", i.skip, {},
          "Patterns over names of parameters that begin fresh, whatever from has for them, such as a new head: ['fc.*']; tensors of from "
          "that they match stay unread. One that matches nothing is refused.");
}

template <class V>
void Visit(V& v, Model& m) {
  v.Field("family", m.family, {},
          "Built-in model. Exactly one of family and graph; other models, a Llama too, are graphs (docs/tasks/own-graph.md).");
  v.Field("preset", m.preset, {.number_or_text = true}, PresetDoc());
  v.Field("config", m.config, {}, "Overrides of the preset; only the family's own fields.");
  v.Field("graph", m.graph, {}, "Any model as an OP-DAG: exactly one of file and inline.");
  v.Field("init", m.init, {}, "Where the parameters come from before the first step.");
}

template <class V>
void Visit(V& v, Validation& d) {
  v.Field("path", d.path, {.one_or_many = true},
          "Files or folders, relative to the job file, or s3://BUCKET/KEY. Of a folder of images or tokens its test files (t10k*, test*, "
          "val*) are "
          "read; one with files for training alone is refused.");
  v.Field("fraction", d.fraction, {.min = 0, .max = 1, .above_min = true, .below_max = true}, "Share of the training data held out.");
  v.Field(
      "split", d.split, {.applies = d.fraction.has_value(), .belongs_to = "a fraction"},
      "What fraction holds out: even (samples from all parts of the data, drawn once for all) or end (the last ones). Omitted: even, and "
      "in a run that goes on from a checkpoint as that was made.");
}

template <class V>
void Visit(V& v, Shapes& s) {
  v.Field("samples", s.samples, {.min = 1, .max = 1e8}, "How many images one epoch has.");
  v.Field("imageSize", s.image_size, {.min = 8, .max = 512}, "Width and height in pixels; three channels.");
  v.Field("numClasses", s.num_classes, {.min = 2, .max = 10}, "Classes: so many different shapes.");
  v.Field("seed", s.seed, {.min = 0, .max = kMaxSeed}, "Seed by which the images are drawn: the same seed gives the same images.");
}

template <class V>
void Visit(V& v, Data& d) {
  v.Field("kind", d.kind, {}, "text (bytes), tokens (.bin of uint16 or uint32), cifar10, idx, or shapes (images made up on the fly).");
  const bool files = d.kind != DataKind::kShapes;
  v.Field(
      "path", d.path, {.one_or_many = true, .applies = files, .belongs_to = "data that is read from files, not to shapes"},
      "Files or folders, read in sorted order, relative to the job file, or s3://BUCKET/KEY of an object or of all below it, which each "
      "reader fetches first. Of a folder of images or tokens those for training are read (train*, data_batch*). Required unless kind "
      "is shapes.");
  v.Field(
      "encoding", d.encoding, {.applies = d.kind == DataKind::kText, .belongs_to = "data of kind text"},
      "utf-8: files that are named must be text, those of folders that are none are skipped. bytes: any files. Omitted: utf-8, and in a "
      "run that goes on from a checkpoint as that was made.");
  v.Field("tokenDtype", d.token_dtype, {.applies = d.kind == DataKind::kTokens, .belongs_to = "data of kind tokens"},
          "Width of a token. auto: .u32 and .uint32 are uint32, .u16 and .uint16 uint16; .bin is uint32 where the vocabulary needs it or "
          "every other 16 bits are zero, else uint16.");
  v.Field("validation", d.validation, {}, "Data for evaluation: exactly one of path and fraction. Omitted: none.");
  v.Field("shapes", d.shapes, {.applies = !files, .belongs_to = "data of kind shapes"},
          "How many images of kind shapes there are, of which size and how many classes.");
  v.Field("volume", d.volume, {.kubernetes_only = true}, "Kubernetes volume source that holds path.");
  v.Field("clusters", d.clusters, {.name = true, .max_items = kMaxClusters, .kubernetes_only = true},
          "Member clusters that can reach the data: the ops that read samples and targets are placed there. Omitted: all.");
}

template <class V>
void Visit(V& v, Optimizer& o) {
  v.Field("name", o.name, {}, "adamw (decoupled weight decay) or sgd (coupled), both as in PyTorch.");
  const bool adamw = o.name == OptimizerName::kAdamw;
  if (V::kFillsIn) o.weight_decay = adamw ? 0.01 : 0;
  v.Field("learningRate", o.learning_rate, {.min = 0, .max = 1000, .default_depends = true}, RecipeDocs().learning_rate);
  v.Field("beta1", o.beta1, {.min = 0, .max = 1, .below_max = true, .applies = adamw, .belongs_to = "optimizer adamw"},
          "Decay of the running mean of gradients (the first moment) of optimizer adamw.");
  v.Field("beta2", o.beta2,
          {.min = 0, .max = 1, .below_max = true, .default_depends = true, .applies = adamw, .belongs_to = "optimizer adamw"},
          RecipeDocs().beta2);
  v.Field("epsilon", o.epsilon, {.min = 0, .max = 1, .applies = adamw, .belongs_to = "optimizer adamw"},
          "Added to the denominator by optimizer adamw, so that it is never 0.");
  v.Field("momentum", o.momentum, {.min = 0, .max = 1, .below_max = true, .applies = !adamw, .belongs_to = "optimizer sgd"},
          "Momentum of optimizer sgd; 0: plain gradient descent.");
  v.Field("nesterov", o.nesterov, {.applies = !adamw, .belongs_to = "optimizer sgd"},
          "Whether optimizer sgd uses Nesterov's form of momentum, which needs momentum above 0.");
  v.Field("weightDecay", o.weight_decay, {.min = 0, .max = 1000, .default_depends = true}, RecipeDocs().weight_decay);
}

template <class V>
void Visit(V& v, Schedule& s) {
  v.Field("name", s.name, {.default_depends = true}, RecipeDocs().schedule_name);
  v.Field("warmupSteps", s.warmup_steps, {.min = 0, .max = kMaxSteps, .default_depends = true}, RecipeDocs().warmup_steps);
  v.Field("minLearningRate", s.min_learning_rate, {.min = 0, .max = 1000, .default_depends = true}, RecipeDocs().min_learning_rate);
}

template <class V>
void Visit(V& v, Evaluation& e) {
  v.Field("everySteps", e.every_steps, {.min = 0, .max = kMaxSteps}, "Also after the last step. 0: no evaluation.");
  v.Field("batches", e.batches, {.min = 1, .max = 1e6},
          "An evaluation reads the first so many global batches of the validation data. Omitted: all of them.");
}

template <class V>
void Visit(V& v, Training& t) {
  v.Field("steps", t.steps, {.min = 0, .max = kMaxSteps},
          "Optimizer steps; 0 initialises, writes step-000000 where there is a checkpoint, and ends.");
  v.Field("globalBatchSize", t.global_batch_size, {.min = 1, .max = kMaxBatch}, "Samples in one step, over all micro-batches.");
  v.Field("microBatchSize", t.micro_batch_size, {.min = 1, .max = kMaxBatch, .zero_is_auto = true},
          "Samples in one pass; divides globalBatchSize. auto: the planner chooses, once for a run; loss bits depend on it.");
  v.Field("sequenceLength", t.sequence_length, {.min = 1, .max = kMaxSequence}, "Tokens in a sample of text or tokens.");
  v.Field("optimizer", t.optimizer, {}, "How gradients change the parameters.");
  v.Field("schedule", t.schedule, {}, "How the learning rate goes over the steps.");
  v.Field("gradientClipNorm", t.gradient_clip_norm, {.min = 0, .max = 1e9, .default_depends = true}, RecipeDocs().clip_norm);
  v.Field("precision", t.precision, {}, "Activations and their gradients; parameters, their gradients and the optimizer are fp32.");
  v.Field("recompute", t.recompute, {},
          "Activation checkpointing. full: of activations only what goes from one block to the next is kept, the others of a block are "
          "made again on the way back; auto: where memory is short.");
  v.Field("seed", t.seed, {.min = 0, .max = kMaxSeed},
          "Seed of data order and dropout. The same bits again also take the same microBatchSize.");
  v.Field("evaluation", t.evaluation, {}, "When and on how much of the validation data the loss is measured.");
}

template <class V>
void Visit(V& v, Pin& p) {
  v.Field("ops", p.ops, {.required = true}, "Pattern over op names, such as block.0.*; '*' stands for any text.");
  v.Field("device", p.device, {.required = true, .name = true}, "Name of the device that must run these ops.");
}

template <class V>
void Visit(V& v, Strategy& s) {
  v.Field("planner", s.planner, {}, "Which planner cuts the model into stages and places them on devices.");
  v.Field("stages", s.stages, {.min = 0, .max = kMaxExecutors},
          "0: the planner decides; N: exactly N. After a loss that leaves fewer executors a run goes on in as many stages as are left, "
          "which Replanned counts.");
  v.Field("replicas", s.replicas, {.min = 0, .max = kMaxExecutors, .zero_is_auto = true},
          "Pipelines side by side that share each batch (data parallelism). auto: the planner decides.");
  v.Field("pipelineSchedule", s.pipeline_schedule, {}, "In which order a stage runs the forward and backward passes of its micro-batches.");
  v.Field("inFlight", s.in_flight, {.min = 0, .max = scheduler::kMaxMicroBatches, .zero_is_auto = true},
          "Micro-batches in flight in the pipeline. auto: the planner decides.");
  v.Field("backend", s.backend, {}, "Kernels: cpu (fast) or ref (plain loops, the yardstick of the tests).");
  v.Field("pins", s.pins, {}, "Ops that must run on a certain device, whatever the planner would choose.");
  v.Field("exclude", s.exclude, {.name = true}, "Names of devices that must run nothing of this job.");
}

template <class V>
void Visit(V& v, Compression& c) {
  v.Field("policy", c.policy, {}, "none (codec and ratio are ignored), uniform (every cut the same) or adatopk (per link).");
  v.Field("codec", c.codec, {}, "auto: per link, what hides it at the least loss; fp32: exact.");
  v.Field("limit", c.limit, {},
          absl::StrCat("With codec auto, the last one that a link may use of ", CompressionLevels(), ". auto: each of them."));
  v.Field("ratio", c.ratio, {.min = 1, .max = 1e6}, "topk: size / kept; the most that any link may use. No bound on the other codecs.");
  v.Field("maxLossIncrease", c.max_loss_increase, {.min = 0, .max = 1e6},
          "Nats that all links together may be expected to cost where the codec is chosen: policy adatopk, or codec auto. What uniform "
          "names is "
          "used whatever it costs.");
  v.Field("topkValues", c.topk_values, {},
          "topk: what the kept values travel as; auto: int8, and int4 where policy adatopk sends inner residuals alone, which lose little "
          "more by it.");
  v.Field("errorFeedback", c.error_feedback, {}, "Add what was dropped to the next message.");
  v.Field("tiedGradients", c.tied_gradients, {},
          "Gradients of parameters that several stages use, as a head tied to its embedding. auto: fp32, or with adatopk what trains "
          "faster to an equal loss, within codec and limit. policy none and several replicas exchange them as fp32.");
  v.Field(
      "guard", c.guard, {},
      "Where messages lose more than their kind of value bears, or the loss rises: auto gives less aggressive codecs, also in the place of "
      "those asked for here; warn only says so; none does not look.");
}

template <class V>
void Visit(V& v, Replica& r) {
  v.Field("path", r.path, {.required = true}, "Folder, relative to the run's output folder, or s3://BUCKET/PREFIX.");
  v.Field("everySteps", r.every_steps, {.min = 0, .max = kMaxSteps},
          "Only checkpoints of steps that are multiples of it, and the last; 0: each.");
  v.Field("volume", r.volume, {.kubernetes_only = true}, "Kubernetes volume source that holds path; the broker alone mounts it.");
}

template <class V>
void Visit(V& v, Checkpoint& c) {
  v.Field("path", c.path, {},
          "Folder, relative to the run's output folder, or s3://BUCKET/PREFIX: then they are saved in checkpoints/ there first and copied "
          "while training goes on.");
  v.Field("everySteps", c.every_steps, {.min = 0, .max = kMaxSteps}, "0: only the last step, which is always saved.");
  v.Field("keep", c.keep, {.min = 0, .max = 1e6}, "Newest checkpoints to keep; 0: all.");
  v.Field(
      "resume", c.resume, {},
      "auto (the newest whole one, if any), never, or the path or s3:// URI of a checkpoint, relative to the job file. With these two each "
      "start begins there, and each attempt after a failure, whatever was saved since.");
  v.Field("replica", c.replica, {},
          "Copies in a second place, to which a run falls back where the first has not got the newest checkpoint whole.");
  v.Field(
      "volume", c.volume, {.kubernetes_only = true},
      "Kubernetes volume source that holds path, mounted by the broker and every executor; those that see the broker's folder there write "
      "their part themselves, what others do says shards.");
  v.Field(
      "shards", c.shards, {},
      "Where executors of clusters other than the broker's, or that join a run with --site-checkpoints, leave their part. Site: in their "
      "own cluster, in volume or in that folder, and lost with it unless there is a replica; with a volume of kind emptyDir, ephemeral, "
      "csi or hostPath, or without one, as Broker. Broker: it is sent to the broker.");
}

template <class V>
void Visit(V& v, Executors& e) {
  v.Field("replicas", e.replicas, {.min = 1, .max = kMaxExecutors}, "Executors wanted. Omitted: as many as there are, within min and max.");
  v.Field(
      "min", e.min, {.min = 1, .max = kMaxExecutors},
      "Fewest that may train: with fewer there is no plan, at the start or after a loss. A run that machines join (fusionctl run --listen) "
      "waits for so many before its first plan, and goes on with fewer after a loss.");
  v.Field("max", e.max, {.min = 1, .max = kMaxExecutors}, "Most that may train. Omitted: all there are.");
  v.Field("spares", e.spares, {.min = 0, .max = kMaxExecutors},
          "Executors that wait with a device of their own and take the place of one that is lost.");
  v.Field("threads", e.threads, {.min = 0, .max = 1024, .zero_is_auto = true},
          "Compute threads of an executor. auto: what its device has. In a topology the threads of each device count.");
  v.Field("stabilizationSeconds", e.stabilization_seconds, {.min = 0, .max = 86400, .kubernetes_only = true},
          "How long there must be room for more executors, where a job runs with fewer than it wants, before it starts again from a "
          "checkpoint with more.");
  v.Field(
      "brokerLostTimeoutSeconds", e.broker_lost_timeout_seconds, {.min = 600, .max = 604800, .kubernetes_only = true},
      "How long an executor may be without contact with its broker until its Pod ends and gives its device back, some minutes sooner or "
      "later. Longer than workerLostTimeoutSeconds of the clusters, and than the hub may take to come back. Of Pods that are made from "
      "then on.");
  v.Field("template", e.pod_template, {.kubernetes_only = true},
          "Kubernetes PodTemplateSpec that is laid under each executor's Pod: its resources, volumes, image, node selector.");
}

template <class V>
void Visit(V& v, PlacementCluster& c) {
  v.Field("name", c.name, {.required = true, .name = true}, "Name of the FusionCluster.");
  v.Field("min", c.min, {.min = 0, .max = kMaxExecutors}, "Fewest executors that it must have, or the job does not begin.");
  v.Field("max", c.max, {.min = 0, .max = kMaxExecutors}, "Most executors that it may have. Omitted: any number.");
}

template <class V>
void Visit(V& v, Placement& p) {
  v.Field("device", p.device, {.name = true, .kubernetes_only = true},
          "Kind of device, or any: words of what the label nvidia.com/gpu.product, amd.com/gpu.product-name or fusionllm.io/device of a "
          "node says, as in h100 or a100-sxm4.");
  v.Field("clusters", p.clusters, {.max_items = kMaxClusters, .list_key = "name", .kubernetes_only = true},
          "Member clusters that may be used. Omitted: all.");
  v.Field("clusterSelector", p.cluster_selector, {.kubernetes_only = true},
          "Kubernetes label selector: only FusionClusters whose labels it selects are used. Omitted: all.");
  v.Field("spread", p.spread, {.kubernetes_only = true},
          "Even: the clusters take executors in turn; Packed: one after the other, the first first, so that fewer links between clusters "
          "carry the steps; Fastest: as the scheduler service expects the fastest steps, if the operator asks one, else Even; Auto: "
          "Fastest, but Even where clusters says an order of preference.");
  v.Field("minMemory", p.min_memory, {}, "Memory that a device must have to be used.");
  v.Field("maxEgressBytesPerStep", p.max_egress_bytes_per_step, {.min = 0, .max = kMaxSeed},
          "Bytes that may leave a site (on Kubernetes: a cluster) for others in one step. Omitted: no limit.");
}

template <class V>
void Visit(V& v, FailureRule& r) {
  v.Field("name", r.name, {.required = true, .name = true}, "Name of the rule, shown in conditions and events.");
  v.Field("action", r.action, {.required = true},
          "FailJob; RestartJob (all executors, counted); RestartJobAndIgnoreMaxRestarts (not counted); RestartExecutor (it alone, not "
          "counted); Ignore (an executor that has failed is not replaced before the job starts again); ReplaceCluster (its executors move "
          "to another member, counted). Of the broker the last three mean RestartJob.");
  v.Field("onExitCodes", r.on_exit_codes, {.min = 1, .max = 255, .max_items = 255},
          "Exit codes of the broker, or of an executor whose Pod has failed: a container of an executor that ends is started again in its "
          "Pod.");
  v.Field("onReasons", r.on_reasons, {.max_items = 32, .max_length = 256},
          "Reasons of a Pod, of its condition DisruptionTarget or of its container, such as Evicted, PreemptionByScheduler, NodeLost or "
          "OOMKilled; ClusterLost and BrokerLost are the operator's.");
}

template <class V>
void Visit(V& v, FailurePolicy& p) {
  v.Field("maxRestarts", p.max_restarts, {.min = 0, .max = 1e6}, "Counted restarts after which the job fails.");
  v.Field("rules", p.rules, {.max_items = 20, .list_key = "name"},
          "The first that holds decides; a rule holds when the exit code or the reason is one of its own, or when it names neither. None "
          "holds: RestartExecutor; of the broker RestartJob, but FailJob after exit code 2 (wrong input) or 3 (no plan fits).");
}

template <class V>
void Visit(V& v, Network& n) {
  v.Field(
      "mode", n.mode, {},
      "Auto: Direct in one cluster, Relay between several; Direct: by Pod address, which must be routed between the clusters; NodePort and "
      "LoadBalancer: by a Service for each executor; Relay: through the broker, for members that can only dial out.");
  v.Field("port", n.port, {.min = 1, .max = 65535}, "Port at which the broker listens; executors listen at a fixed one, 7001.");
  v.Field("address", n.address, {.max_length = 253}, "Host name or address at which other clusters reach the broker. Omitted: chosen.");
}

template <class V>
void Visit(V& v, BrokerSettings& b) {
  v.Field("volume", b.volume, {}, "Kubernetes volume source for the journal of the run. Omitted: lost with the broker's Pod.");
  v.Field("template", b.pod_template, {},
          "Kubernetes PodTemplateSpec that is laid under the broker's Pod: its resources, volumes, image, node selector.");
}

template <class V>
void Visit(V& v, ObjectStore& o) {
  v.Field("secretName", o.secret_name, {.max_length = 253},
          "Secret of the job's namespace, in each cluster whose Pods need it, with the keys AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, "
          "where wanted, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL_S3.");
}

template <class V>
void Visit(V& v, Spec& s) {
  v.Field("model", s.model, {.required = true}, "The model that is trained, and what its parameters begin with.");
  v.Field("data", s.data, {.required = true}, "The data that it is trained on.");
  v.Field("training", s.training, {}, "How long and how it is trained: steps, batches, optimizer, precision.");
  v.Field("strategy", s.strategy, {}, "How the model is cut into stages and run on devices.");
  v.Field("compression", s.compression, {},
          "How activations and gradients are compressed on their way between stages. Omitted: not at all.");
  v.Field("checkpoint", s.checkpoint, {},
          "Omitted: none; but `fusionctl run` keeps the last step in checkpoints/ of the run's folder, unless it has --no-checkpoint.");
  v.Field("executors", s.executors, {}, "How many processes train, with what each of them runs as.");
  v.Field("placement", s.placement, {}, "In which clusters and on which devices executors may run.");
  v.Field("suspend", s.suspend, {.kubernetes_only = true},
          "True: nothing of the job is made; of a job that runs a checkpoint is saved, and its Pods end.");
  v.Field("managedBy", s.managed_by, {.max_length = 63, .kubernetes_only = true},
          "Controller that owns the job, as DOMAIN/NAME; never changes. Omitted, or fusionllm.io/fusion-operator: this operator.");
  v.Field("queueName", s.queue_name, {.name = true, .kubernetes_only = true},
          "Name of a queue, for a column and a field selector alone: it queues nothing. Kueue takes the queue from the label "
          "kueue.x-k8s.io/queue-name.");
  v.Field("failurePolicy", s.failure_policy, {.kubernetes_only = true},
          "What happens when a Pod of the job fails or is lost: which failures start it again, and which fail it.");
  v.Field("activeDeadlineSeconds", s.active_deadline_seconds, {.min = 1, .max = kMaxSteps, .kubernetes_only = true},
          "Longest run, from the start or the last resumption; then the job fails.");
  v.Field(
      "pendingDeadlineSeconds", s.pending_deadline_seconds, {.min = 1, .max = kMaxSteps, .kubernetes_only = true},
      "Longest wait, from creation, scheduling, resumption or the end of the attempt before, until all executors are ready; then the job "
      "fails. Attempts in a row of which none gets ready share one wait. Omitted: it waits.");
  v.Field("ttlSecondsAfterFinished", s.ttl_seconds_after_finished, {.min = 0, .max = kMaxSteps, .kubernetes_only = true},
          "When a finished job is deleted. Omitted: never.");
  v.Field("cleanPodPolicy", s.clean_pod_policy, {.kubernetes_only = true},
          "Pods that are deleted when the job has finished; None keeps the Services as well.");
  v.Field(
      "forceDeleteAfterSeconds", s.force_delete_after_seconds, {.min = 0, .max = kMaxSteps, .kubernetes_only = true},
      "How long a Pod may take to terminate, or the node of an executor may be not ready, until the Pod is deleted by force; 0: as long as "
      "it takes.");
  v.Field("preserveResourcesOnDeletion", s.preserve_resources_on_deletion, {.kubernetes_only = true},
          "Deleting the job leaves what it made in all clusters.");
  v.Field("network", s.network, {.kubernetes_only = true}, "How executors of different clusters reach each other and the broker.");
  v.Field("broker", s.broker, {.kubernetes_only = true}, "The process on the hub that plans the run and leads its executors.");
  v.Field("objectStore", s.object_store, {.kubernetes_only = true}, "How s3:// URIs are reached; `fusionctl run` asks its environment.");
}

template <class V>
void Visit(V& v, FusionJob& j) {
  v.Constant("apiVersion", kApiVersion);
  v.Constant("kind", "FusionJob");
  v.Field("metadata", j.metadata, {.required = true}, "Name, namespace and labels of the job.");
  v.Field("spec", j.spec, {.required = true}, "What is to be trained, on what, how and where: the job as its user wants it.");
}

}  // namespace fusionllm::job
