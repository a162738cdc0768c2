"""The posterior of rewards by conditioning the joint normal distribution of all cells, for each set of variances."""

import numpy as np
from scipy.stats import multivariate_normal

from wiserouter.learning.random_effects import (
    DEVIATIONS,
    LEVEL,
    LEVEL_SPREAD,
    SLOPE,
    SLOPE_SPREAD,
    EffectPrior,
    Effects,
    effect_prior,
    effects,
)
from wiserouter.types import FloatArray


def priors(log_price: FloatArray, score: FloatArray, precision: FloatArray) -> EffectPrior:
    """Return the prior of models: those without a score by conditioning on the scores of the others."""
    line, given = LEVEL + SLOPE * log_price, precision > 0
    level = LEVEL_SPREAD**2 if given.sum() > 1 else 0.0
    error = np.diag(1.0 / np.where(given, precision, 1.0))
    means, covariances, evidence = [], [], []
    for deviation in DEVIATIONS:
        about = LEVEL_SPREAD**2 + SLOPE_SPREAD**2 * np.outer(log_price, log_price) + deviation**2 * np.eye(len(line))
        of_scores = (about + error)[np.ix_(given, given)]
        slopes = about[:, given] @ np.linalg.inv(of_scores)  # of all models on the scores
        mean, covariance = line + slopes @ (score - line)[given], about - slopes @ about[given]
        follows = np.where(given, 1.0, slopes.sum(axis=1))
        mean[given], covariance[given], covariance[:, given] = score[given], 0.0, 0.0
        covariance[np.ix_(given, given)] = error[np.ix_(given, given)]
        means.append(mean)
        covariances.append(covariance + level * np.outer(follows, follows))
        seen = multivariate_normal(line[given], of_scores).logpdf(score[given]) if given.any() else 0.0
        evidence.append(seen + 0.5 * given.sum() * np.log(2.0 * np.pi))
    return EffectPrior(np.array(means), np.array(covariances), np.array(evidence))


def joint(count: FloatArray, total: FloatArray, noise: float, prior: EffectPrior) -> Effects:
    """Return the posterior of the effects, averaged over the variances by their marginal likelihoods."""
    context, model = np.nonzero(count > 0)
    seen = (total / np.where(count > 0, count, 1.0))[context, model]
    of_context, of_model = np.eye(len(count))[context], np.eye(count.shape[1])[model]
    variances, found, likely = ([0.0, *DEVIATIONS**2] if len(count) > 1 else [0.0]), [], []
    for u in variances:
        for v in variances:
            for mean, covariance, evidence in zip(*prior, strict=True):
                cells = of_model @ covariance @ of_model.T + v * of_context @ of_context.T
                cells += np.diag(u + noise / count[context, model])
                pull = np.linalg.solve(cells, seen - mean[model])
                models = mean + covariance @ of_model.T @ pull
                gained = covariance @ of_model.T @ np.linalg.solve(cells, of_model @ covariance)
                found.append((models, v * of_context.T @ pull, np.diag(covariance - gained), u))
                likely.append(evidence + (multivariate_normal(mean[model], cells).logpdf(seen) if len(seen) else 0.0))
    share = np.exp(np.array(likely) - max(likely))
    share /= share.sum()
    models, contexts, variance, interaction = (share @ np.array(part) for part in zip(*found, strict=True))
    apart = share @ (np.array([one[0] for one in found]) - models) ** 2
    return Effects(models + contexts[:, np.newaxis], variance + apart, float(interaction))


def toward_price_line(mean: FloatArray, noise: FloatArray, log_price: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the posterior means, within 0 and 1, and variances of models whose means have these error variances."""
    count, none = 1.0 / np.maximum(noise, 1e-12), np.zeros(len(mean))
    of = effects(count[np.newaxis], (count * mean)[np.newaxis], 1.0, effect_prior(log_price, none, none))
    return np.clip(of.mean[0], 0.0, 1.0), of.variance
