// SPDX-License-Identifier: Apache-2.0
//
// The one object of libucmstore.so's own: it proves that the public header stands alone. The rest
// comes from the static libraries.
#include "pipeline/pipeline.h"
