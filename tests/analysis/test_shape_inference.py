"""Shape inference family by family, on instructions of a line each."""

from __future__ import annotations

import pytest

from hlo_lint.analysis.shape_inference import Inferred, Open, Refusal, ShapeInference
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.parser.module import parse_file
from tests.analysis.inference import CALLED, check, infer, rows
from tests.conftest import present
from tests.texts import entry


def one(
    opcode: str, operands: str, tail: str = "", printed: str = ""
) -> tuple[Instruction, Module]:
    """An instruction that reads parameters of these types, separated by `;`, in a module."""
    types = [text.strip() for text in operands.split(";") if text.strip()]
    lines = [f"  %o{n} = {text} parameter({n})" for n, text in enumerate(types)]
    reads = ", ".join(f"%o{n}" for n in range(len(types)))
    lines.append(f"  ROOT %r = {printed} {opcode}({reads}){tail and ', '}{tail}")
    before = "".join(f"{text}\n\n" for text in CALLED.values())
    (module,) = parse_file(entry("\n".join(lines), before)).modules
    assert not module.problems
    return root_of(module), module


def inferred(opcode: str, operands: str, tail: str = "") -> Inferred:
    return infer(*one(opcode, operands, tail, "opaque[]"))


def complaints(opcode: str, operands: str, tail: str, printed: str) -> tuple[str, ...]:
    return check(*one(opcode, operands, tail, printed))


SHAPES = """
negate                  | f32[3,4]                        |                      | f32[3,4]
abs                     | c64[3]                          |                      | f32[3]
imag                    | c128[3]                         |                      | f64[3]
is-finite               | bf16[3]                         |                      | pred[3]
not                     | pred[3]                         |                      | pred[3]
add                     | f32[3]; bf16[3]                 |                      | f32[3]
add                     | f16[3]; bf16[3]                 |                      | bf16[3]
complex                 | f32[3]; f32[3]                  |                      | c64[3]
compare                 | s32[3]; s32[3]                  | direction=GE         | pred[3]
select                  | pred[]; f32[3]; f32[3]          |                      | f32[3]
clamp                   | f32[]; f32[3]; f32[]            |                      | f32[3]
reduce-precision        | f32[3]                          | exponent_bits=5, mantissa_bits=3 | f32[3]
map                     | f32[3]; f32[3]                  | dimensions={0}, to_apply=%add | f32[3]
copy                    | f32[3,4]{0,1}                   |                      | f32[3,4]{0,1}
transpose               | f32[3,4,5]                      | dimensions={2,0,1}   | f32[5,3,4]
reverse                 | f32[3,4]                        | dimensions={1}       | f32[3,4]
slice                   | f32[9,4]                        | slice={[1:8:2], [0:4]} | f32[4,4]
pad                     | f32[3]; f32[]                   | padding=1_2_3        | f32[12]
pad                     | f32[3]; f32[]                   | padding=-3_0         | f32[0]
concatenate             | f32[3,2]; f32[4,2]              | dimensions={0}       | f32[7,2]
dynamic-slice           | f32[8,9]; s32[]; s32[]          | dynamic_slice_sizes={2,3} | f32[2,3]
dynamic-slice           | f32[8,9]; s32[2]                | dynamic_slice_sizes={2,3} | f32[2,3]
dynamic-update-slice    | f32[8,9]{0,1}; f32[2,3]; s32[]; s32[] |                | f32[8,9]{0,1}
get-dimension-size      | f32[3,4]                        | dimensions={1}       | s32[]
set-dimension-size      | f32[3,4]; s32[]                 | dimensions={1}       | f32[3,<=4]
dot                     | f32[2,3,4]; f32[2,4,5]          | lhs_batch_dims={0}, rhs_batch_dims={0}, \
lhs_contracting_dims={2}, rhs_contracting_dims={1} | f32[2,3,5]
dot                     | s8[3]; u8[4]                    |                      | s8[3,4]
scaled-dot              | f8e4m3fn[4,64]; f8e8m0fnu[4,2]; f8e4m3fn[64,8]; f8e8m0fnu[2,8] | \
lhs_contracting_dims={1}, rhs_contracting_dims={0} | f8e4m3fn[4,8]
ragged-dot              | f32[11,5]; f32[3,5,7]; s32[3]   | lhs_contracting_dims={1}, \
rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0} | f32[11,7]
ragged-dot              | f32[11,5]; f32[5,7]; s32[3]     | lhs_contracting_dims={1}, \
rhs_contracting_dims={0}, lhs_ragged_dims={1}, rhs_group_dims={} | f32[3,11,7]
convolution             | f32[1,4,4,6]; f32[3,3,3,8]      | window={size=3x3 stride=1x2 pad=1_1x0_0}, \
dim_labels=b01f_01io->b01f, feature_group_count=2 | f32[1,4,1,8]
convolution             | f32[4,5,5,3]; f32[3,3,3,8]      | window={size=3x3 lhs_dilate=2x1}, \
dim_labels=b01f_01io->f01b, batch_group_count=2 | f32[8,7,3,2]
gather                  | f32[8,9]; s32[5,1]              | offset_dims={1}, collapsed_slice_dims={0}, \
start_index_map={0}, index_vector_dim=1, slice_sizes={1,9} | f32[5,9]
gather                  | f32[2,8,9]; s32[2,5,2]          | offset_dims={2}, collapsed_slice_dims={1}, \
start_index_map={1,2}, operand_batching_dims={0}, start_indices_batching_dims={0}, \
index_vector_dim=2, slice_sizes={1,1,4} | f32[2,5,4]
scatter                 | f32[8,9]; s32[5,1]; f32[5,9]    | update_window_dims={1}, \
inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%add | f32[8,9]
reduce                  | f32[3,4,5]; f32[]               | dimensions={0,2}, to_apply=%add | f32[4]
reduce                  | bf16[3,4]; f32[]                | dimensions={0}, to_apply=%add | f32[4]
reduce                  | f32[3,4]; s32[3,4]; f32[]; s32[] | dimensions={1}, to_apply=%largest | \
(f32[3], s32[3])
reduce-window           | f32[9,8]; f32[]                 | window={size=3x2 stride=2x1 pad=1_1x0_1 \
rhs_dilate=2x1}, to_apply=%add | f32[4,8]
scatter                 | f32[4,5]; s32[4,1]; f32[4]      | update_window_dims={}, \
inserted_window_dims={0}, input_batching_dims={0}, scatter_indices_batching_dims={0}, \
scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%add | f32[4,5]
select-and-scatter      | f32[4,5]; f32[2,5]; f32[]       | window={size=3x1 stride=2x1 pad=0_1x0_0}, \
select=%less, scatter=%add | f32[4,5]
sort                    | f32[3,4]                        | dimensions={1}, to_apply=%less | f32[3,4]
topk                    | f32[3,8]                        | k=2, largest=true    | (f32[3,2], s32[3,2])
fft                     | f32[3,8]                        | fft_type=RFFT, fft_length={8} | c64[3,5]
fft                     | c64[3,5]                        | fft_type=IRFFT, fft_length={9} | f32[3,9]
fft                     | c64[4,8]                        | fft_type=FFT, fft_length={4,8} | c64[4,8]
cholesky                | f32[2,3,3]                      | lower=true           | f32[2,3,3]
triangular-solve        | f32[3,3]; f32[5,3]              | left_side=false, lower=true, \
transpose_a=TRANSPOSE | f32[5,3]
batch-norm-training     | f32[2,3,4]; f32[3]; f32[3]      | epsilon=0.1, feature_index=1 | \
(f32[2,3,4], f32[3], f32[3])
batch-norm-inference    | f32[2,3]; f32[3]; f32[3]; f32[3]; f32[3] | epsilon=0.1, feature_index=1 | f32[2,3]
tuple                   | f32[3]{0}; s32[]                |                      | (f32[3]{0}, s32[])
get-tuple-element       | (f32[3]{0}, s32[])              | index=1              | s32[]
opt-barrier             | (f32[3]{0}, s32[])              |                      | (f32[3]{0}, s32[])
after-all               | token[]; token[]                |                      | token[]
add-dependency          | f32[3]; token[]                 |                      | f32[3]
outfeed                 | f32[3]; token[]                 |                      | token[]
outfeed                 | f32[3]; f32[]                   |                      | token[]
call                    | f32[3]                          | to_apply=%double     | f32[3]{0}
fusion                  | f32[4]                          | kind=kLoop, calls=%cut | f32[3]{0}
while                   | f32[3]                          | condition=%always, body=%double | f32[3]
conditional             | pred[]; f32[3]; f32[4]          | true_computation=%double, \
false_computation=%cut | f32[3]{0}
conditional             | s32[]; f32[4]; f32[3]           | branch_computations={%cut, %double} | f32[3]{0}
copy-start              | f32[3]{0}                       |                      | (f32[3], f32[3], u32[])
copy-done               | (f32[3]{0:S(5)}, f32[3]{0}, u32[]) |                   | f32[3]{0:S(5)}
send                    | f32[3]{0}; token[]              | channel_id=1         | (f32[3]{0}, u32[], token[])
send-done               | (f32[3]{0}, u32[], token[])     | channel_id=1         | token[]
recv-done               | (f32[3]{0}, u32[], token[])     | channel_id=1         | (f32[3]{0}, token[])
async-done              | ((f32[3]{0}), f32[4]{0}, s32[]) |                      | f32[4]{0}
fusion-done             | ((f32[3]{0}), f32[4]{0}, s32[]) |                      | f32[4]{0}
custom-call-update      | ((f32[3]), f32[4], s32[])       |                      | ((f32[3]), f32[4], s32[])
all-reduce              | f32[3]                          | replica_groups={{0,1}}, to_apply=%add | f32[3]
all-reduce              | f32[3]; bf16[4]                 | replica_groups={{0,1}}, to_apply=%add | \
(f32[3], bf16[4])
all-gather              | f32[3,4]                        | replica_groups={{0,1,2}}, dimensions={1} | f32[3,12]
all-gather              | f32[3,4]                        | channel_id=1, replica_groups=[2,4]<=[8], \
dimensions={0}, use_global_device_ids=true | f32[12,4]
all-gather              | f32[3,4]                        | channel_id=1, \
replica_groups=mesh['x'=2,'y'=4] {'y'}, dimensions={0}, use_global_device_ids=true | f32[12,4]
all-gather-done         | (f32[3], f32[6])                |                      | f32[6]
reduce-scatter          | f32[8,6]                        | replica_groups={{0,1}}, dimensions={1}, \
to_apply=%add | f32[8,3]
all-to-all              | f32[4,4]                        | replica_groups={{0,1}}, dimensions={0} | f32[4,4]
all-to-all              | f32[4]; f32[4]                  | replica_groups={{0,1}} | (f32[4], f32[4])
collective-permute      | f32[4]                          | source_target_pairs={{0,1}} | f32[4]
collective-broadcast    | f32[4]                          | replica_groups={{0,1}} | f32[4]
ragged-all-to-all       | f32[4]; f32[8]; s32[2]; s32[2]; s32[2]; s32[2] | replica_groups={{0,1}} | f32[8]
partition-id            |                                 |                      | u32[]
rng-get-and-update-state |                                | delta=1              | u64[2]
""".replace("\\\n", "")  # noqa: E501

REFUSALS = """
negate                  | pred[3]                         |                      | no elements of type pred
sine                    | s32[3]                          |                      | no elements of type s32
negate                  | f32[3]; f32[3]                  |                      | takes 1 operand,
add                     | f32[3]; s32[3]                  |                      | the types f32 and s32
add                     | f32[3,4]; f32[3,5]              |                      | sizes differ: 4 and 5
add                     | f32[3]; f32[3,4]                |                      | 1 and 2 dimensions
add                     | (f32[3]); f32[3]                |                      | operand 0 of add has to be an array
complex                 | f16[3]; f16[3]                  |                      | no complex type of f16
select                  | s32[3]; f32[3]; f32[3]          |                      | a pred, got s32
select                  | pred[2]; f32[3]; f32[3]         |                      | by pred[2] among f32[3]
clamp                   | f32[2]; f32[3]; f32[]           |                      | operand 0 of clamp
map                     | f32[3]                          | dimensions={0}, to_apply=%add | 1 parameter, got 2
transpose               | f32[3,4]                        | dimensions={1,1}     | {1,1} is not a permutation
reverse                 | f32[3]                          | dimensions={1}       | dimensions=1
slice                   | f32[9]                          | slice={[1:10]}       | [1:10] out of 9
slice                   | f32[9]                          | slice={[1:3:0]}      | a stride of 0
pad                     | f32[3]; f32[]                   | padding=-4_0         | negative size -1
pad                     | f32[3]; s32[]                   | padding=1_0          | f32 with s32
concatenate             | f32[3,2]; f32[4,3]              | dimensions={0}       | dimension 1 of the operands
concatenate             | f32[3]; f32[4]                  | dimensions={1}       | dimensions=1
dynamic-slice           | f32[8]; s32[]                   | dynamic_slice_sizes={9} | 9 out of 8
dynamic-slice           | f32[8,9]; s32[]                 | dynamic_slice_sizes={2,2} | needs 2 start indices
dynamic-slice           | f32[8]; f32[]                   | dynamic_slice_sizes={2} | operand 1
dynamic-update-slice    | f32[8]; f32[9]; s32[]           |                      | 9 into 8
set-dimension-size      | f32[3]; s64[]                   | dimensions={0}       | has to be an s32[]
dot                     | f32[3,4]; f32[5,6]              | lhs_contracting_dims={1}, \
rhs_contracting_dims={0} | contracting dimensions differ: 1 of the lhs has 4
dot                     | f32[3,4]; f32[4,6]              | lhs_contracting_dims={2}, \
rhs_contracting_dims={0} | lhs_contracting_dims names dimension 2
dot                     | f32[3,4]; f32[4,6]              | lhs_batch_dims={1}, lhs_contracting_dims={1}, \
rhs_batch_dims={0}, rhs_contracting_dims={0} | contracting dimension twice
ragged-dot              | f32[11,5]; f32[3,5,7]; s32[4]   | lhs_contracting_dims={1}, \
rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0} | 3 right sides for 4 groups
convolution             | f32[1,4,4,6]; f32[3,3,5,8]      | window={size=3x3}, \
dim_labels=b01f_01io->b01f | the kernel takes 5
convolution             | f32[1,4,4,6]; f32[3,3,6,8]      | window={size=3x2}, \
dim_labels=b01f_01io->b01f | the window has size 2
gather                  | f32[8,9]; s32[5,1]              | offset_dims={1}, collapsed_slice_dims={0}, \
start_index_map={0}, index_vector_dim=1, slice_sizes={1,10} | takes 10 out of 9
gather                  | f32[8,9]; f32[5,1]              | offset_dims={1}, collapsed_slice_dims={0}, \
start_index_map={0}, index_vector_dim=1, slice_sizes={1,9} | not integers
scatter                 | f32[8,9]; s32[5,1]; f32[6,9]    | update_window_dims={1}, \
inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%add | \
dimension 0 of the updates has 6
reduce                  | f32[3,4]; f32[]                 | dimensions={2}, to_apply=%add | dimensions=2
reduce                  | f32[3,4]; f32[]                 | dimensions={0,0}, to_apply=%add | a dimension twice
reduce                  | s32[3,4]; f32[]                 | dimensions={0}, to_apply=%add | folds s32[]
reduce                  | f32[3,4]; f32[]                 | dimensions={0}, to_apply=%largest | 2 parameters, got 4
reduce-window           | f32[9,8]; f32[]                 | window={size=3}, to_apply=%add | rank 2, got 1
select-and-scatter      | f32[4,5]; f32[3,5]; f32[]       | window={size=3x1 stride=2x1 pad=0_1x0_0}, \
select=%less, scatter=%add | takes f32[2,5]
sort                    | f32[3]; f32[4]                  | dimensions={0}, to_apply=%less | differ in their sizes
topk                    | f32[3,8]                        | k=9, largest=true    | 9 out of 8
fft                     | f32[3,8]                        | fft_type=RFFT, fft_length={7} | needs 7
fft                     | f32[8]                          | fft_type=FFT, fft_length={8} | complex numbers
cholesky                | f32[3,4]                        | lower=true           | square matrices
triangular-solve        | f32[3,3]; f32[4,5]              | left_side=true, lower=true, \
transpose_a=NO_TRANSPOSE | 3 unknowns with 4
batch-norm-training     | f32[2,3]; f32[4]; f32[3]        | epsilon=0.1, feature_index=1 | 3 features
get-tuple-element       | (f32[3], s32[])                 | index=2              | a tuple of 2
get-tuple-element       | f32[3]                          | index=0              | not a tuple
call                    | f32[4]                          | to_apply=%double     | the parameter is f32[3]
while                   | f32[4]                          | condition=%always, body=%double | takes f32[3]
while                   | f32[3]                          | condition=%double, body=%double | expected pred[]
conditional             | f32[]; f32[3]                   | branch_computations={%double} | pred[] or s32[]
conditional             | s32[]; f32[4]                   | branch_computations={%double} | branch 0 takes
copy-done               | (f32[3], f32[4], u32[])         |                      | f32[4] into f32[3]
async-done              | (f32[3], f32[4])                |                      | begins with its operands
reduce-scatter          | f32[8,5]                        | replica_groups={{0,1}}, dimensions={1}, \
to_apply=%add | 5 elements in dimension 1 to 2 devices
all-to-all              | f32[5]                          | replica_groups={{0,1}}, dimensions={0} | 5 elements
ragged-all-to-all       | f32[4]; f32[8]; s32[2]; s32[3]; s32[2]; s32[2] | replica_groups={{0,1}} | \
operands 2 and 3
""".replace("\\\n", "")  # noqa: E501

WRONG = """
add                     | f32[3]; f32[3]      |                        | f32[4]      | expected f32[3] as the result of add, got f32[4]
add                     | f32[3]; f32[]       |                        | f32[3]      | no implicit broadcast
copy                    | f32[3]              |                        | f32[4]      | expected f32[3]
reshape                 | f32[6]              |                        | f32[2,4]    | 6 elements cannot give 8
reshape                 | f32[6]              |                        | s32[6]      | of f32 cannot give s32
broadcast               | f32[3]              | dimensions={0}         | f32[4,3]    | dimension 0 of the result
broadcast               | f32[3]              | dimensions={2}         | f32[3,3]    | dimensions=2
broadcast               | f32[3]              | dimensions={}          | f32[3]      | has 0 numbers
bitcast                 | f32[3]              |                        | f32[4]      | 12 bytes cannot give 16
iota                    |                     | iota_dimension=1       | s32[3]      | iota_dimension=1
convert                 | f32[3]              |                        | s32[4]      | cannot give s32[4]
bitcast-convert         | f32[3]              |                        | u8[3]       | cannot give u8[3]
stochastic-convert      | f32[3]; u16[3]      |                        | bf16[3]     | rounds f32 by u16
get-tuple-element       | (f32[3]{0}, s32[])  | index=1                | f32[]       | expected s32[]
get-tuple-element       | (f32[3,4]{1,0})     | index=0                | f32[3,4]{0,1} | different layouts
tuple                   | f32[3]; s32[]       |                        | (s32[], f32[3]) | expected f32[3] at index {0}
sort                    | s32[3]              | dimensions={0}, to_apply=%less | s32[3] | expected s32[]
sort                    | f32[3]              | dimensions={1}, to_apply=%less | f32[3] | dimensions=1
fusion                  | f32[4]              | kind=kLoop, calls=%cut | f32[4]{0}   | expected f32[3]
infeed                  | token[]             |                        | f32[3]      | data and a token
recv                    | token[]             | channel_id=1           | f32[3]      | the type of recv
rng                     | s32[]; s32[]        | distribution=rng_normal | s32[3]     | rng_normal cannot give s32
rng-bit-generator       | u64[2]              | algorithm=rng_default  | (u64[3], u32[4]) | returns u64[3]
clamp-start             | f32[4]; f32[4]      |                        | ((f32[4], f32[4]), f32[4], s32[]) | takes 3 operands, got 2
slice-start             | f32[9]              | slice={[0:4]}          | ((f32[9]), f32[5], s32[]) | returns f32[4]
fusion-start            | f32[4]              | kind=kLoop, calls=%cut | ((f32[5]), f32[3], s32[]) | f32[4] at index {0}
async-start             | f32[4]              | calls=%cut             | ((f32[4]), f32[4], s32[]) | its computation's f32[3]
reduce                  | f32[3]; f32[]       | dimensions={0}, to_apply=%boxed | f32[] | expected (f32[])
reduce                  | f32[3]; f32[]       | dimensions={0}, to_apply=%add | (f32[]) | expected f32[]
scan                    | f32[7]; f32[]       | dimensions={0}, num_carries=1, to_apply=%add | f32[7] | expected f32[]
all-gather              | f32[3]              | replica_groups={{0,1}}, dimensions={0} | f32[9] | expected f32[6]
all-gather              | f32[3]              | channel_id=1, replica_groups={{0,1}}, dimensions={0} | f32[7] | 3 elements in dimension 0 cannot give 7
all-gather-start        | f32[3]              | replica_groups={{0,1}}, dimensions={0} | (f32[3], f32[9]) | returns f32[6]
collective-permute-start | f32[3]             | source_target_pairs={{0,1}} | (f32[3], f32[4], u32[], u32[]) | returns f32[3]
"""  # noqa: E501

RIGHT = """
all-to-all              | f32[8]              | replica_groups={}, dimensions={0} | f32[8]
add                     | f32[3]; bf16[3]     |                        | bf16[3]
dot                     | s8[3]; s8[3]        |                        | s32[3,3]
reshape                 | f32[2,<=3]          |                        | f32[6]
broadcast               | f32[]               | dimensions={}          | f32[3,4]
bitcast                 | f32[6]              |                        | s8[2,12]
bitcast                 | s4[8]{0}            |                        | u8[4]{0}
bitcast-convert         | f32[3]              |                        | u8[3,4]
bitcast-convert         | u8[3,4]             |                        | f32[3]
stochastic-convert      | f32[3]; u32[3]      |                        | bf16[3]
slice                   | f32[<=9]            | slice={[0:9]}          | f32[9]
get-tuple-element       | (f32[3,4]{1,0:S(5)}) | index=0               | f32[3,4]{1,0}
copy                    | f32[3,4]{1,0}       |                        | f32[3,4]{0,1}
infeed                  | token[]             |                        | ((f32[3], s32[]), token[])
custom-call             | f32[3]              | custom_call_target="x" | (s32[7], token[])
reduce                  | f32[3]; f32[]       | dimensions={0}, to_apply=%boxed | (f32[])
reduce-window           | f32[3]; f32[]       | window={size=2}, to_apply=%boxed | (f32[2])
scan                    | f32[7,3]; f32[3]    | dimensions={0}, num_carries=1, to_apply=%step | (f32[7,3], f32[3])
scan                    | f32[7]; f32[]       | dimensions={0}, num_carries=1, to_apply=%add | f32[]
scan                    | f32[7]; f32[]       | dimensions={0}, num_carries=1, to_apply=%boxed | f32[]
scan                    | f32[7]; f32[]       | dimensions={0}, num_carries=1, to_apply=%add | (f32[])
slice-start             | f32[9]              | slice={[0:4]}          | ((f32[9]), f32[4], s32[])
custom-call-start       | f32[4]              | custom_call_target="x" | ((f32[4]), f32[3], s32[])
async-start             | f32[4]              | calls=%cut             | ((f32[4]), f32[3], s32[])
all-gather-start        | f32[3]              | replica_groups={{0,1}}, dimensions={0} | (f32[3], f32[6])
collective-permute-start | f32[3]             | source_target_pairs={{0,1}} | (f32[3], f32[3], u32[], u32[])
"""  # noqa: E501

UNKNOWN = """
opcode-of-tomorrow      | f32[3]              |                        | f32[1,2]
transpose               | f32[3,4]            |                        | f32[1,2]
transpose               | f32[3,4]            | dimensions={x}         | f32[1,2]
negate                  | f9[3]               |                        | f9[3]
add                     | f9[3]; f32[3]       |                        | f32[3]
dot                     | f9[3]; f32[3]       |                        | f32[3,3]
call                    | f32[3]              | to_apply=%missing      | f32[1,2]
all-gather              | f32[3]              | replica_groups={}, dimensions={0} | f32[12]
get-tuple-element       | (f32[3])            | index=x                | f32[3]
"""


@pytest.mark.parametrize(("opcode", "operands", "tail", "shape"), rows(SHAPES))
def test_a_shape_follows(opcode: str, operands: str, tail: str, shape: str) -> None:
    assert str(inferred(opcode, operands, tail)) == shape


@pytest.mark.parametrize(("opcode", "operands", "tail", "why"), rows(REFUSALS))
def test_no_shape_follows_and_we_say_why(opcode: str, operands: str, tail: str, why: str) -> None:
    found = inferred(opcode, operands, tail)
    assert isinstance(found, Refusal)
    assert why in found.message


@pytest.mark.parametrize(
    ("opcode", "operands", "tail", "printed", "why"),
    [*rows(WRONG), *((*row, "") for row in rows(RIGHT))],
)
def test_a_printed_shape_is_right_or_what_is_wrong_is_said(
    opcode: str, operands: str, tail: str, printed: str, why: str
) -> None:
    found = complaints(opcode, operands, tail, printed)
    assert len(found) == bool(why)
    assert why in "".join(found)


@pytest.mark.parametrize(("opcode", "operands", "tail", "printed"), rows(UNKNOWN))
def test_what_no_text_says_is_unknown(opcode: str, operands: str, tail: str, printed: str) -> None:
    assert inferred(opcode, operands, tail) is Open.UNKNOWN
    assert complaints(opcode, operands, tail, printed) == ()


def test_xla_reads_the_dimensions_of_a_broadcast_without_a_type_as_sizes() -> None:
    assert str(inferred("broadcast", "f32[3]", "dimensions={2}")) == "f32[2,3]"


@pytest.mark.parametrize("opcode", ["reshape", "bitcast", "convert", "custom-call"])
def test_the_printed_type_says_what_some_opcodes_make(opcode: str) -> None:
    assert inferred(opcode, "f32[]", "dimensions={}") is Open.FREE


def text_of(*lines: str) -> tuple[Instruction, Module]:
    """The root of an entry of these lines, and its module."""
    (module,) = parse_file(entry("\n".join(lines))).modules
    return root_of(module), module


def root_of(module: Module) -> Instruction:
    return present(present(module.entry).root)


def test_types_that_are_left_out_are_inferred_one_from_the_other() -> None:
    _, module = text_of(
        "p = f32[3,4]{1,0} parameter(0)", "t = transpose(p), dimensions={1,0}", "ROOT n = negate(t)"
    )
    shapes = map(ShapeInference(module.computations).shape, present(module.entry).instructions)
    assert list(map(str, shapes)) == ["f32[3,4]{1,0}", "f32[4,3]", "f32[4,3]"]


def test_an_operand_may_be_an_element_of_a_tuple() -> None:
    taken = text_of("p = (f32[3]{0}, (s32[], pred[2]{0})) parameter(0)", "ROOT n = not(p#1#1)")
    assert str(infer(*taken)) == "pred[2]"


def test_an_operand_that_nothing_defines_is_not_known() -> None:
    root, module = text_of("ROOT n = f32[3] negate(missing)")
    assert infer(root, module) is Open.UNKNOWN
    assert check(root, module) == ()


def test_a_computation_that_calls_itself_ends() -> None:
    taken = text_of("p = f32[3] parameter(0)", "ROOT c = call(p), to_apply=e")
    assert infer(*taken) is Open.UNKNOWN


def test_computations_that_call_each_other_a_thousand_deep_end() -> None:
    parts = [
        f"c{n} {{\n  p{n} = f32[3] parameter(0)\n  ROOT r{n} = call(p{n}), to_apply=c{n + 1}\n}}\n"
        for n in range(1000)
    ]
    (module,) = parse_file("HloModule m\n\n" + "\n".join(parts)).modules
    first = present(module.computations[0].root)
    assert infer(first, module) is Open.UNKNOWN


def test_what_depends_on_callees_is_not_known_without_a_module() -> None:
    instruction, _ = one("call", "f32[3]", "to_apply=%double", "f32[4]")
    assert infer(instruction) is Open.UNKNOWN
    assert check(instruction) == ()


def test_metadata_does_not_bear_on_a_shape() -> None:
    tail = 'slice={[0:2]}, metadata={op_name="slice={[0:1]} }"}, backend_config={"slice":[{}]}'
    assert str(inferred("slice", "f32[3]", tail)) == "f32[2]"
    behind = 'metadata={op_name="x"}, slice={[0:2]}'
    assert str(inferred("slice", "f32[3]", behind)) == "f32[2]"


def test_numbers_that_no_machine_has_are_not_printed() -> None:
    huge = ",".join(["9" * 17] * 400)
    assert complaints("reshape", f"f32[{huge}]", "", "f32[2]") == ()
    assert complaints("bitcast", f"f32[{huge}]", "", "f32[2]") == ()
    taken = text_of("p = (f32[3]) parameter(0)", f"ROOT n = negate(p#{'9' * 5000})")
    assert infer(*taken) is Open.UNKNOWN
