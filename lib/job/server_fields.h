// Fields of an object that its API server writes and no file says: what `kubectl get -o yaml`, controller-gen and kustomize leave in one.
#pragma once

#include "lib/job/document.h"

namespace fusionllm::job {

// Takes status and such fields of metadata (creationTimestamp, uid, managedFields and so on, finalizers and ownerReferences among them)
// out of a document of a custom resource, whatever they hold.
void DropServerFields(Node& root);

}  // namespace fusionllm::job
