"""oneDNN's C interface by numbers and names, as dnnl_types.h has them."""

from ctypes import c_int64

MAX_DIMS = 12
Dims = c_int64 * MAX_DIMS
UNIMPLEMENTED = 3
STATUS = {1: "out of memory", 2: "invalid arguments", UNIMPLEMENTED: "unimplemented", 5: "runtime error"}
FLOAT32 = 3  # dnnl_data_type_t
RUNTIMES = {1: "sequential", 2: "OpenMP", 4: "TBB", 8: "threadpool", 512: "SYCL"}
ISAS = {
    0x1: "SSE4.1",
    0x3: "AVX",
    0x7: "AVX2",
    0xF: "AVX2 VNNI",
    0x1F: "AVX2 VNNI 2",
    0x27: "AVX-512",
    0x67: "AVX-512 VNNI",
    0xE7: "AVX-512 BF16",
    0x1EF: "AVX-512 FP16",
    0xFEF: "AMX",
    0x1FEF: "AMX FP16",
}
LIMITS = {"SSE4.1": 0x1, "AVX": 0x3, "AVX2": 0x1F}  # numbers of the largest in ISAS

# dnnl_prop_kind_t
TRAINING = 64
INFERENCE = 96
BACKWARD = 128
# dnnl_alg_kind_t
DIRECT = 1
RELU = 0x20
MAX_POOLING = 0x1FF
AVG_POOLING = 0x2FF
AVG_POOLING_INSIDE = 0x3FF
LRN_ACROSS = 0xAFF
ADD = 0x1FFF0
MULTIPLY = 0x1FFF1
# execution arguments
SRC = 1
SRC_1 = 2
DST = 17
WEIGHTS = 33
BIAS = 41
MEAN = 49
VARIANCE = 50
SCALE = 51
SHIFT = 52
WORKSPACE = 64
SCRATCHPAD = 80
DIFF_SRC = 129
DIFF_DST = 145
DIFF_WEIGHTS = 161
DIFF_BIAS = 169
DIFF_SCALE = 255
DIFF_SHIFT = 256
THEN = 32768
ARGUMENTS = {  # by the names of a call's arrays; SHIFT is described, but not accepted, by backward halves
    SRC: "x",
    DST: "y",
    WEIGHTS: "weight",
    BIAS: "bias",
    MEAN: "mean",
    VARIANCE: "variance",
    SCALE: "weight",
    WORKSPACE: "workspace",
    SCRATCHPAD: "scratch",
    DIFF_SRC: "dx",
    DIFF_DST: "dy",
    DIFF_WEIGHTS: "dweight",
    DIFF_BIAS: "dbias",
    DIFF_SCALE: "dweight",
    DIFF_SHIFT: "dbias",
}
# dnnl_query_t
IMPLEMENTATION = 8
STRIDES = 14
EXEC_ARG_MD = 255
NDIMS = 256
PADDED_DIMS = 260
FORMAT_KIND = 262
INNER_COUNT = 263
INNER_SIZES = 264
INNER_AXES = 265

# System libraries that oneDNN needs, which slim images lack
INSTALL = {
    "libgomp.so.1": "apt-get install libgomp1, or dnf install libgomp",
    "libstdc++.so.6": "apt-get install libstdc++6, or dnf install libstdc++",
}

# Functions that mpibow calls.
FUNCTIONS = """
dnnl_version
dnnl_get_effective_cpu_isa
dnnl_engine_create
dnnl_engine_destroy
dnnl_set_max_cpu_isa
dnnl_stream_create
dnnl_stream_destroy
dnnl_memory_desc_create_with_tag
dnnl_memory_desc_query
dnnl_memory_desc_get_size
dnnl_memory_desc_clone
dnnl_memory_desc_destroy
dnnl_memory_create
dnnl_memory_destroy
dnnl_primitive_desc_query
dnnl_primitive_desc_query_md
dnnl_primitive_desc_destroy
dnnl_primitive_create
dnnl_primitive_execute
dnnl_primitive_destroy
dnnl_primitive_attr_create
dnnl_primitive_attr_destroy
dnnl_primitive_attr_set_scratchpad_mode
dnnl_primitive_attr_set_post_ops
dnnl_post_ops_create
dnnl_post_ops_destroy
dnnl_post_ops_append_eltwise
dnnl_post_ops_append_binary
dnnl_convolution_forward_primitive_desc_create
dnnl_convolution_backward_data_primitive_desc_create
dnnl_convolution_backward_weights_primitive_desc_create
dnnl_inner_product_forward_primitive_desc_create
dnnl_inner_product_backward_data_primitive_desc_create
dnnl_inner_product_backward_weights_primitive_desc_create
dnnl_batch_normalization_forward_primitive_desc_create
dnnl_batch_normalization_backward_primitive_desc_create
dnnl_pooling_forward_primitive_desc_create
dnnl_pooling_backward_primitive_desc_create
dnnl_lrn_forward_primitive_desc_create
dnnl_lrn_backward_primitive_desc_create
dnnl_reorder_primitive_desc_create
"""
NEEDED = FUNCTIONS.split()
