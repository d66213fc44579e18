// The table of Topology's fields (schema.h says who reads it).
#pragma once

#include "lib/job/topology.h"

namespace fusionllm::job {

template <class V>
void Visit(V& v, TopologyMetadata& m) {
  v.Field("name", m.name, {.required = true, .name = true}, "Name of the topology.");
}

template <class V>
void Visit(V& v, Device& d) {
  v.Field("name", d.name, {.required = true, .name = true},
          "Unique among all devices and sites, whatever the case; not that of a process of every run (broker, scheduler, client).");
  v.Field("computeScale", d.compute_scale, {.min = 1e-6, .max = 1},
          "Share of one of this machine's cores: an op takes its own time divided by this.");
  v.Field("memory", d.memory, {}, "Memory for a stage. Omitted: what this machine has.");
  v.Field("role", d.role, {}, "A spare idles until it replaces another device.");
  v.Field("threads", d.threads, {.min = 1, .max = 1024}, "Compute threads.");
  v.Field("profile", d.profile, {},
          "A GPU by name (`fusionctl bench --list-profiles`), to plan for: its public figures instead of this machine's times and memory. "
          "Such a topology cannot be run. Omitted: emulated on this machine.");
}

template <class V>
void Visit(V& v, InternalNetwork& n) {
  v.Field("bandwidth", n.bandwidth, {}, "Of each device's own port, in each direction.");
  v.Field("latency", n.latency, {}, "One way, between two devices of the site.");
}

template <class V>
void Visit(V& v, Site& s) {
  v.Field("name", s.name, {.required = true, .name = true}, "Unique among all sites and devices, whatever the case.");
  v.Field("devices", s.devices, {.required = true, .max_items = kMaxDevices}, "At least one.");
  v.Field("internal", s.internal, {},
          "Network inside the site; of GPUs of one machine, what passes between their processes "
          "(docs/tasks/plan-for-hardware-you-do-not-have.md).");
}

template <class V>
void Visit(V& v, Link& l) {
  v.Field("from", l.from, {.required = true, .name = true}, "Site or device that sends.");
  v.Field("to", l.to, {.required = true, .name = true}, "Site or device that receives.");
  v.Field("bandwidth", l.bandwidth, {.required = true},
          "Between sites: one capacity for all pairs that cross; between devices: theirs alone.");
  v.Field("latency", l.latency, {}, "One way, end to end.");
  v.Field("jitter", l.jitter, {}, "Latency varies by up to this much.");
  v.Field("loss", l.loss, {.min = 0, .max = 1, .below_max = true}, "Share of packets lost.");
  v.Field("symmetric", l.symmetric, {}, "true: the same holds from `to` to `from`, with a capacity of its own.");
}

template <class V>
void Visit(V& v, SharedUplink& u) {
  v.Field("site", u.site, {.required = true, .name = true}, "Site.");
  v.Field("egress", u.egress, {}, "All that leaves the site together. Omitted: no limit.");
  v.Field("ingress", u.ingress, {}, "All that enters the site together. Omitted: no limit.");
}

template <class V>
void Visit(V& v, TopologySpec& s) {
  v.Field("sites", s.sites, {.required = true, .max_items = kMaxSites}, "At least one.");
  v.Field("links", s.links, {.max_items = kMaxLinks}, "Directed; the most specific wins.");
  v.Field("sharedUplinks", s.shared_uplinks, {.max_items = kMaxSites}, "Capacity that all links of a site share.");
}

template <class V>
void Visit(V& v, Topology& t) {
  v.Constant("apiVersion", kApiVersion);
  v.Constant("kind", "Topology");
  v.Field("metadata", t.metadata, {.required = true}, "Identity.");
  v.Field("spec", t.spec, {.required = true}, "Sites and links.");
}

}  // namespace fusionllm::job
