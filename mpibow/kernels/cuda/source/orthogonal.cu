// The orthogonal common step of all matrices of a flat array: mpibow.sync.orthogonal defines it, orthogonal.py launches it.
//
// Each launch does one thing to all matrices. A block takes one TILE x TILE part of one of them, which `tiles` names; so
// no sum's order depends on who comes first. A matrix is (rows, columns) here, rows <= columns: one that lies the other
// way is turned on the way to x, and back on the way to y.
#include "reduce.cuh"
#include "step.cuh"

constexpr int TILE = 64, PIECE = 1024;  // elements, and columns of a piece of a Gram matrix: orthogonal.py says the same
constexpr int DEPTH = 16;               // of what a block multiplies at a time
constexpr int CELLS = 4;                // a thread makes CELLS x CELLS elements of a product
constexpr int PITCH = TILE + 4;         // of staged rows: writes to them meet few banks twice, reads are 16 bytes
constexpr int ALIGNMENT = 16;           // of where matrices begin
constexpr int V = LANES<float>;
static_assert(TILE / CELLS * (TILE / CELLS) == THREADS);

// `place`: its first element in flat arrays; `own`: in x and y; `square`: in arrays of (rows, rows) for each matrix;
// `piece`: of its Gram matrix's pieces. Of its own tiles, and of its squares', the first block's number, and how many.
struct Matrix {
    long long place, own, square, piece;
    int rows, columns, turned, pieces, tile, tiles, cell, cells;
};

struct Tile { int matrix, row, column, piece; };  // row, column: of its first element

// body(row, column, where it lies in the matrix's own memory) for the elements of a tile, next to one another as they lie.
template <class Body> __device__ void each_of_tile(const Matrix& m, const Tile& t, Body body) {
    for (int e = threadIdx.x; e < TILE * TILE; e += THREADS) {
        const int row = t.row + (m.turned ? e % TILE : e / TILE), column = t.column + (m.turned ? e / TILE : e % TILE);
        if (row < m.rows && column < m.columns)
            body(row, column, m.turned ? (long long)column * m.rows + row : (long long)row * m.columns + column);
    }
}

// squares[block] <- |U|^2 of a tile.
__global__ void __launch_bounds__(THREADS) matrix_squares(
    const float* total, const Matrix* matrices, const Tile* tiles, double* squares) {
    const Tile t = tiles[blockIdx.x];
    const Matrix m = matrices[t.matrix];
    double square = 0;
    each_of_tile(m, t, [&](int, int, long long i) {
        const double u = total[m.place + i];
        square += u * u;
    });
    square = block_sum(square);
    if (threadIdx.x == 0) squares[blockIdx.x] = square;
}

// The sum of `count` parts, which all threads of a block make.
__device__ inline double sum_of(const double* parts, int count) {
    double sum = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) sum += parts[i];
    return block_sum(sum);
}

// norms[matrix] <- |V|; the grid is the matrices.
__global__ void __launch_bounds__(THREADS) matrix_norms(const double* squares, const Matrix* matrices, double* norms) {
    const double sum = sum_of(squares + matrices[blockIdx.x].tile, matrices[blockIdx.x].tiles);
    if (threadIdx.x == 0) norms[blockIdx.x] = sqrt(sum);
}

// x <- V / |V|, 0 where V is.
__global__ void __launch_bounds__(THREADS) normalised(
    const float* total, const Matrix* matrices, const Tile* tiles, const double* norms, float* x) {
    const Tile t = tiles[blockIdx.x];
    const Matrix m = matrices[t.matrix];
    const double norm = norms[t.matrix];
    each_of_tile(m, t, [&](int row, int column, long long i) {
        x[m.own + (long long)row * m.columns + column] = norm == 0 ? 0 : float(total[m.place + i] / norm);
    });
}

// A factor of a product, row by row: `count` of what is not summed over, `pitch` from row to row.
struct Factor {
    const float* x;
    int count, pitch;
};

// staged[n][i] <- element begin + n of row first + i (ALONG), or element first + i of row begin + n; 0 beyond.
template <bool ALONG>
__device__ void stage(const Factor& from, int first, int begin, int end, float (&staged)[DEPTH][PITCH]) {
    for (int e = threadIdx.x; e < DEPTH * TILE; e += THREADS) {
        const int n = ALONG ? e % DEPTH : e / TILE, i = ALONG ? e / DEPTH : e % TILE;
        const long long row = ALONG ? first + i : begin + n;
        const bool inside = first + i < from.count && begin + n < end;
        staged[n][i] = inside ? from.x[row * from.pitch + (ALONG ? begin + n : first + i)] : 0;
    }
}

// made(row, column, element) for the elements of the tile's part of left right, or of left right^T (TURNED), the sum
// over [begin, end), by the threads that have made them.
template <bool TURNED, class Made>
__device__ void product_of(const Factor& left, const Factor& right, const Tile& t, int begin, int end, Made made) {
    alignas(16) __shared__ float lefts[DEPTH][PITCH];
    alignas(16) __shared__ float rights[DEPTH][PITCH];
    const int i = threadIdx.x / (TILE / CELLS) * CELLS, j = threadIdx.x % (TILE / CELLS) * CELLS;
    const bool inside = t.row + i < left.count && t.column + j < right.count;
    float sums[CELLS][CELLS] = {};
    for (; begin < end; begin += DEPTH) {
        stage<true>(left, t.row, begin, end, lefts);
        stage<TURNED>(right, t.column, begin, end, rights);
        __syncthreads();
        if (inside)
            for (int n = 0; n < DEPTH; n++) {
                float a[CELLS], b[CELLS];
                load(&lefts[n][i], a);
                load(&rights[n][j], b);
                for (int p = 0; p < CELLS; p++)
                    for (int q = 0; q < CELLS; q++) sums[p][q] = fmaf(a[p], b[q], sums[p][q]);
            }
        __syncthreads();  // the next ones are staged in the same place
    }
    for (int p = 0; p < CELLS; p++)
        for (int q = 0; q < CELLS; q++)
            if (t.row + i + p < left.count && t.column + j + q < right.count) made(t.row + i + p, t.column + j + q, sums[p][q]);
}

// pieces <- X X^T over PIECE columns each.
__global__ void __launch_bounds__(THREADS) gram_pieces(
    const float* x, const Matrix* matrices, const Tile* tiles, float* pieces) {
    const Tile t = tiles[blockIdx.x];
    const Matrix m = matrices[t.matrix];
    const Factor own{x + m.own, m.rows, m.columns};
    float* to = pieces + m.piece + (long long)t.piece * m.rows * m.rows;
    const int begin = t.piece * PIECE, end = m.columns - begin < PIECE ? m.columns : begin + PIECE;
    product_of<true>(own, own, t, begin, end, [&](int row, int column, float sum) { to[row * m.rows + column] = sum; });
}

// grams <- the sum of their pieces, in order.
__global__ void __launch_bounds__(THREADS) gram_sums(
    const float* pieces, const Matrix* matrices, const Tile* tiles, float* grams) {
    const Tile t = tiles[blockIdx.x];
    const Matrix m = matrices[t.matrix];
    for (int e = threadIdx.x; e < TILE * TILE; e += THREADS) {
        const int row = t.row + e / TILE, column = t.column + e % TILE;
        if (row >= m.rows || column >= m.rows) continue;
        const float* from = pieces + m.piece + row * m.rows + column;
        float sum = from[0];
        for (int p = 1; p < m.pieces; p++) sum = sum + from[(long long)p * m.rows * m.rows];
        grams[m.square + row * m.rows + column] = sum;
    }
}

// made <- first I + third S + fifth S^2 of S = `squares`; sums[block] <- |S^2|^2 of a tile, where not null.
__global__ void __launch_bounds__(THREADS) polynomials(
    const float* squares, const Matrix* matrices, const Tile* tiles, float first, float third, float fifth, float* made,
    double* sums) {
    const Tile t = tiles[blockIdx.x];
    const Matrix m = matrices[t.matrix];
    const Factor s{squares + m.square, m.rows, m.rows};
    double square = 0;
    product_of<false>(s, s, t, 0, m.rows, [&](int row, int column, float sum) {
        const float value = third * s.x[row * m.rows + column] + fifth * sum;
        made[m.square + row * m.rows + column] = row == column ? value + first : value;
        square += double(sum) * double(sum);
    });
    if (!sums) return;
    square = block_sum(square);
    if (threadIdx.x == 0) sums[blockIdx.x] = square;
}

// made <- left right of squares; where the grid's y is 2, other_made <- left other_right beside it.
__global__ void __launch_bounds__(THREADS) square_products(
    const float* left, const float* right, float* made, const float* other_right, float* other_made,
    const Matrix* matrices, const Tile* tiles) {
    const Tile t = tiles[blockIdx.x];
    const Matrix m = matrices[t.matrix];
    const Factor a{left + m.square, m.rows, m.rows}, b{(blockIdx.y ? other_right : right) + m.square, m.rows, m.rows};
    float* to = (blockIdx.y ? other_made : made) + m.square;
    product_of<false>(a, b, t, 0, m.rows, [&](int row, int column, float sum) { to[row * m.rows + column] = sum; });
}

// y, as V lies, <- whole X; squares[block] <- |y|^2 of a tile.
__global__ void __launch_bounds__(THREADS) matrix_products(
    const float* whole, const float* x, const Matrix* matrices, const Tile* tiles, float* y, double* squares) {
    const Tile t = tiles[blockIdx.x];
    const Matrix m = matrices[t.matrix];
    const Factor a{whole + m.square, m.rows, m.rows}, b{x + m.own, m.columns, m.columns};
    double square = 0;
    product_of<false>(a, b, t, 0, m.rows, [&](int row, int column, float sum) {
        y[m.own + (m.turned ? (long long)column * m.rows + row : (long long)row * m.columns + column)] = sum;
        square += double(sum) * double(sum);
    });
    square = block_sum(square);
    if (threadIdx.x == 0) squares[blockIdx.x] = square;
}

// lengths[matrix] <- what of y is the common step: min(even, gain reach) |V| / |y|. The grid is the matrices; `squares` is
// of y's tiles, `fourths` of those of S^2, S = X X^T.
__global__ void __launch_bounds__(THREADS) matrix_lengths(
    const double* norms, const double* squares, const double* fourths, const Matrix* matrices, const Step* step,
    float* lengths) {
    const Matrix m = matrices[blockIdx.x];
    const double made = sqrt(sum_of(squares + m.tile, m.tiles)), fourth = sum_of(fourths + m.cell, m.cells);
    if (threadIdx.x != 0) return;
    const double reach = sqrt(sqrt(sqrt(fourth))) * sqrt(double(m.rows)), norm = norms[blockIdx.x];
    lengths[blockIdx.x] = norm == 0 ? 0 : float(fmin(double(step->even), step->gain * reach) * (norm / made));
}

// w_i <- w_i + S, for every row i, and mean <- mean + scale U + S; S is lengths y in matrices, elsewhere gain U.
// owners[i / ALIGNMENT]: whose element i is, -1 no matrix's.
__global__ void add_common(
    float* weights, float* mean, const float* total, const float* y, const float* lengths, const Matrix* matrices,
    const int* owners, const Step* step, long long size, long long stride, int k) {
    const float gain = step->gain, scale = step->scale;
    each(size, V, [&](long long i) {
        float u[V], s[V], w[V];
        load(total, i, size, u);
        const int owner = owners[i / ALIGNMENT];
        if (owner < 0)
            for (int n = 0; n < V; n++) s[n] = gain * u[n];
        else {
            load(y + matrices[owner].own + (i - matrices[owner].place), s);
            for (int n = 0; n < V; n++) s[n] = s[n] == 0 ? 0 : lengths[owner] * s[n];  // padding, whatever the length
        }
        for (int row = 0; row < k; row++) {
            load(weights + row * stride, i, size, w);
            for (int n = 0; n < V; n++) w[n] = w[n] + s[n];
            store(weights + row * stride, i, size, w);
        }
        load(mean, i, size, w);
        for (int n = 0; n < V; n++) w[n] = (w[n] + scale * u[n]) + s[n];
        store(mean, i, size, w);
    });
}
