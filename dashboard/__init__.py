"""Streamlit pages that call analytics and compute nothing."""
