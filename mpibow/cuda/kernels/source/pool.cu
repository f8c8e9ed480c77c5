// Pooling of images with channels last: a thread takes V neighbour channels of one place.
//
// Backward gathers: each place of dx adds up what the windows that hold it have for it, in one order, without atomics.
#include "each.cuh"

// Windows along one side of an image: `count` of them over `extent` places.
struct Side { int extent, count, kernel, stride, pad; };
struct Windows { Side rows, columns; int channels, counts_padding; };

// Windows of `kernel` places, `stride` apart, `pad` in front of the image.
struct Sliding {
    static __device__ int start(const Side& s, int i) { return i * s.stride - s.pad; }
    static __device__ int stop(const Side& s, int i) { return start(s, i) + s.kernel; }
    static __device__ int first(const Side& s, int at) {  // of the windows that hold the place
        const int beyond = at + s.pad - s.kernel;
        return beyond < 0 ? 0 : beyond / s.stride + 1;
    }
    static __device__ int last(const Side& s, int at) { return min((at + s.pad) / s.stride, s.count - 1); }
};

// PyTorch's: window i is [i extent / count, ceil((i + 1) extent / count)).
struct Adaptive {
    static __device__ int start(const Side& s, int i) { return i * s.extent / s.count; }
    static __device__ int stop(const Side& s, int i) { return ((i + 1) * s.extent + s.count - 1) / s.count; }
    static __device__ int first(const Side& s, int at) { return at * s.count / s.extent; }
    static __device__ int last(const Side& s, int at) { return ((at + 1) * s.count + s.extent - 1) / s.extent - 1; }
};

// A place's V neighbour channels begin at `channel`.
struct Place { int image, row, column, channel; };

__device__ inline long long offset(const Place& p, int rows, int columns, int channels) {
    return ((long long)(p.image * rows + p.row) * columns + p.column) * channels + p.channel;
}

// body(place) for all of an array (images, rows, columns, channels).
template <int V, class Body> __device__ void each_place(int images, int rows, int columns, int channels, Body body) {
    const int groups = channels / V;
    each((long long)images * rows * columns * groups, 1, [&](long long e) {
        const int position = int(e / groups), line = position / columns;
        body(Place{line / rows, line % rows, position % columns, int(e % groups) * V});
    });
}

// body(row, column) for the places of window (i, j) that lie inside the image, row by row.
template <class Kind, class Body> __device__ void each_inside(const Windows& w, int i, int j, Body body) {
    const int bottom = min(Kind::stop(w.rows, i), w.rows.extent), right = min(Kind::stop(w.columns, j), w.columns.extent);
    for (int row = max(Kind::start(w.rows, i), 0); row < bottom; row++)
        for (int column = max(Kind::start(w.columns, j), 0); column < right; column++) body(row, column);
}

// body(i, j) for the windows that hold place (row, column): the one that begins last comes first.
template <class Kind, class Body> __device__ void each_holding(const Windows& w, int row, int column, Body body) {
    for (int i = Kind::last(w.rows, row); i >= Kind::first(w.rows, row); i--)
        for (int j = Kind::last(w.columns, column); j >= Kind::first(w.columns, column); j--) body(i, j);
}

// y = the largest of a window, winner its number there, row by row; the first of equals wins.
template <class T, int V>
__global__ void max_pool(const T* x, T* y, unsigned short* winner, Windows w, int images) {
    const Side r = w.rows, c = w.columns;
    each_place<V>(images, r.count, c.count, w.channels, [&](const Place& p) {
        const int top = Sliding::start(r, p.row), left = Sliding::start(c, p.column);
        float best[V];
        unsigned short won[V] = {};
        bool fresh = true;
        each_inside<Sliding>(w, p.row, p.column, [&](int row, int column) {
            const int number = (row - top) * c.kernel + column - left;
            float a[V];
            load(x + offset({p.image, row, column, p.channel}, r.extent, c.extent, w.channels), a);
            for (int v = 0; v < V; v++) {
                if (fresh || a[v] > best[v]) won[v] = (unsigned short)number;
                best[v] = fresh || a[v] > best[v] || a[v] != a[v] ? a[v] : best[v];
            }
            fresh = false;
        });
        const long long at = offset(p, r.count, c.count, w.channels);
        store(y + at, best);
        store(winner + at, won);
    });
}

template <class T, int V>
__global__ void max_pool_back(const T* dy, const unsigned short* winner, T* dx, Windows w, int images) {
    const Side r = w.rows, c = w.columns;
    each_place<V>(images, r.extent, c.extent, w.channels, [&](const Place& p) {
        float sum[V] = {};
        each_holding<Sliding>(w, p.row, p.column, [&](int i, int j) {
            const int number = (p.row - Sliding::start(r, i)) * c.kernel + p.column - Sliding::start(c, j);
            const long long at = offset({p.image, i, j, p.channel}, r.count, c.count, w.channels);
            float d[V];
            unsigned short won[V];
            load(dy + at, d);
            load(winner + at, won);
            for (int v = 0; v < V; v++)
                if (won[v] == number) sum[v] += d[v];
        });
        store(dx + offset(p, r.extent, c.extent, w.channels), sum);
    });
}

// How many places window i counts: those inside the image, and its padding where that counts.
template <class Kind> __device__ int counted(const Side& s, int i, bool padding) {
    const int start = Kind::start(s, i), stop = min(Kind::stop(s, i), s.extent + (padding ? s.pad : 0));
    return stop - (padding ? start : max(start, 0));
}

template <class Kind> __device__ float share(const Windows& w, int i, int j) {
    return 1.0f / (counted<Kind>(w.rows, i, w.counts_padding) * counted<Kind>(w.columns, j, w.counts_padding));
}

// y = the mean of a window.
template <class Kind, class T, int V> __global__ void average(const T* x, T* y, Windows w, int images) {
    const Side r = w.rows, c = w.columns;
    each_place<V>(images, r.count, c.count, w.channels, [&](const Place& p) {
        float sum[V] = {};
        each_inside<Kind>(w, p.row, p.column, [&](int row, int column) {
            float a[V];
            load(x + offset({p.image, row, column, p.channel}, r.extent, c.extent, w.channels), a);
            for (int v = 0; v < V; v++) sum[v] += a[v];
        });
        const float scale = share<Kind>(w, p.row, p.column);
        for (int v = 0; v < V; v++) sum[v] = sum[v] * scale;
        store(y + offset(p, r.count, c.count, w.channels), sum);
    });
}

template <class Kind, class T, int V> __global__ void average_back(const T* dy, T* dx, Windows w, int images) {
    const Side r = w.rows, c = w.columns;
    each_place<V>(images, r.extent, c.extent, w.channels, [&](const Place& p) {
        float sum[V] = {};
        each_holding<Kind>(w, p.row, p.column, [&](int i, int j) {
            const float scale = share<Kind>(w, i, j);
            float d[V];
            load(dy + offset({p.image, i, j, p.channel}, r.count, c.count, w.channels), d);
            for (int v = 0; v < V; v++) sum[v] += d[v] * scale;
        });
        store(dx + offset(p, r.extent, c.extent, w.channels), sum);
    });
}
